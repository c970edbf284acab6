"""One tiny synthetic request to a backend that is well but gets no traffic.

What was learnt of a backend decides whether it gets requests, and only requests teach: a backend that was slow
once and recovered would be found out hundreds of requests too late. The judgement says when one is due
(``policies.alarms.silent``); the text is fresh every time, because n-gram drafters remember.
"""

import logging
import random

import msgspec

from policies.alarms import silent
from policies.decision import PROMPT_HEAVY, Decision
from proxy.checkup.fresh import question
from proxy.gateway import Gateway
from proxy.relay import Relay
from proxy.surfaces.base import Surface
from proxy.wire.headers import Headers
from proxy.wire.inbound import Head, Passport, Served

log = logging.getLogger("draftlane")
APP = "draftlane-probe"
TOKENS = 16


class Nobody:
    """A client that reads everything and keeps nothing."""

    def __init__(self, surface: Surface, name: str, body: bytes) -> None:
        self.surface = surface
        headers: Headers = [(b"content-type", b"application/json"), (b"user-agent", APP.encode())]
        self.head = Head(b"POST", surface.paths[0].encode(), b"", headers)
        self.id = name
        self.peer = "127.0.0.1"
        self.scheme = "http"
        self.passport: Passport | None = None
        self.served: Served | None = None
        self.started = False
        self._body = body

    def body(self) -> bytes:
        """The request."""
        return self._body

    def start(self, status: int, reason: bytes | None, lines: list[bytes], length: int | None) -> None:
        """An answer begins."""
        self.started = True

    def write(self, data: bytes) -> None:
        """Read and forgotten; the meter has seen it."""

    def write_chunks(self, data: bytes, payload: bytes) -> None:
        """As ``write``."""

    def finish(self, trailers: Headers) -> None:
        """The answer is complete."""

    def answer(self, status: int, reason: bytes | None, lines: list[bytes], data: bytes) -> None:
        """A whole answer."""
        self.started = True

    def abort(self) -> None:
        """The answer broke off."""


def probe_silent(gateway: Gateway) -> list[str]:
    """Send what is due now; the names of the backends asked."""
    now = gateway.now()
    due = [name for name, backend in gateway.fleet.backends.items() if silent(gateway.fleet, backend, now)]
    for name in due:
        _probe(gateway, name)
    return due


def _probe(gateway: Gateway, backend: str) -> None:
    surface = gateway.surface_at(b"POST", b"/v1/chat/completions")
    known = gateway.fleet.backends[backend]
    if surface is None or not known.models:
        return
    model = known.models[0]
    body = {
        "model": model,
        "stream": True,
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": question(random.Random())}],
    }
    inbound = Nobody(surface, gateway.clerk.new_id(), msgspec.json.encode(body))
    gateway.began(surface.name)
    relay = Relay(gateway, inbound, surface, gateway.clerk.passport(inbound.head), inbound.id)
    log.info("asking silent backend %s with one synthetic request", backend)
    relay.begin_at(
        Decision(relay.id, backend, known.lane, PROMPT_HEAVY, "synthetic", APP, (), 0.0, 1.0, float(TOKENS), 1.0, None)
    )
