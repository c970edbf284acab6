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
from proxy.wire.nobody import APP, Nobody

log = logging.getLogger("draftlane")
TOKENS = 16


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
