"""The one mutable cell: the fleet, folded from events, and the requests on their way.

Everything runs on the event loop without awaiting between a fact and its consequence, so there are no
locks. ``observe`` is the only way anything is learnt: it folds the event into the fleet at once; those who only write it
down (the journal first) are told in the loop's next turn.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from policies.admission import may_retry
from policies.decide import decide
from policies.decision import Decision, NoBackend, Overloaded, Verdict
from policies.events import Arrived, Cancelled, Event, Joined, Pulse
from policies.fleet import Fleet, advance
from policies.make import make
from proxy.backends import Backend
from proxy.config import Config
from proxy.door import Clerk, Routes, cors_lines
from proxy.ending import Ended, end_of, told, turned_away, turned_down
from proxy.errors import GatewayError
from proxy.keys import Keys
from proxy.models import Models
from proxy.outcome import Outcome
from proxy.patience import overdue, unread
from proxy.relay import Relay
from proxy.surfaces.base import Asked, Surface
from proxy.waves import Wave
from proxy.wire.headers import FORWARDED, named_by_connection, onward_lines
from proxy.wire.inbound import Head, Inbound, Passport

log = logging.getLogger("draftlane.gateway")
Listener = Callable[[Sequence[Event | Verdict]], None]


Told = TypeVar("Told")


def tell_all(listeners: Iterable[Callable[[Told], None]], what: Told) -> None:
    """Whatever happens to a listener is no matter to the others, and to who tells them."""
    for listener in listeners:
        try:
            listener(what)
        except Exception:
            log.exception("a listener failed")


def steady_clock() -> Callable[[], float]:
    """Tells seconds since the Unix epoch that never run backwards within this process."""
    monotonic = time.monotonic
    epoch = time.time() - monotonic()

    def now() -> float:
        return epoch + monotonic()

    return now


def _nobody(_: object) -> None:
    """Nobody listens (tests, replay)."""


def no_place(verdict: NoBackend | Overloaded) -> GatewayError:
    """What the client is told when the judgement found no place."""
    if isinstance(verdict, Overloaded):
        message = "All backends are at their limit. Try again shortly."
        return GatewayError("overloaded", message, retry_after_seconds=verdict.retry_after_seconds)
    if verdict.cause == "too-long":
        return GatewayError("context_length", "The prompt is longer than any backend's context.", param="messages")
    if verdict.cause == "unknown-model":
        return GatewayError("model_not_found", f"The model {verdict.model!r} does not exist.", param="model")
    return GatewayError("no_backend", "No backend is available for this request.", retry_after_seconds=1)


def forwarded_lines(inbound: Inbound) -> bytes:
    """This hop, for ``X-Forwarded-*``."""
    return b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\n" % (inbound.peer.encode(), inbound.scheme.encode())


@lru_cache(maxsize=256)
def _decided(lane: str, workload: str, backend: str, reason: str) -> bytes:
    """What the client is told of a decision; there are few different ones."""
    told = f"x-draftlane-lane: {lane}\r\nx-draftlane-class: {workload}\r\n"
    told += f"x-draftlane-backend: {backend}\r\nx-draftlane-reason: {reason}\r\n"
    return told.encode("latin-1", "replace")


def _pulse(now: float, backend: str, streams: list[Relay]) -> Pulse:
    """What a backend's streams heard; their gaps count anew from here."""
    heard_at = max(relay.heard_at for relay in streams)
    gap = max(relay.gap for relay in streams)
    for relay in streams:
        relay.gap = 0.0
    return Pulse(now, backend, heard_at, gap, len(streams), sum(relay.first_token_at is not None for relay in streams))


class Gateway:
    """See the module. Also the ``Door`` of the server protocols."""

    def __init__(
        self, config: Config, backends: Mapping[str, Backend], keys: Keys, now: Callable[[], float] | None = None
    ) -> None:
        """``now`` is ``steady_clock`` but for a test's own."""
        self.config = config
        self.now = now or steady_clock()
        self.backends = backends
        self.keys = keys
        self.fleet = Fleet(config.policy)
        self.models = Models(config, backends)
        self.routes = Routes(config.extra_paths)
        self.clerk = Clerk(config, keys)
        self.live: set[Relay] = set()
        self._arrivals: Wave[Relay] = Wave(self._begin)
        self.over: Wave[Relay] = Wave(self._finish)
        """Relays whose answers are complete. Some clients still wait for theirs, nobody for the rest."""
        self.listeners: list[Listener] = []
        """Who hears every event and every decision, in order, those of one turn of the loop together."""
        self._unsaid: list[Event | Verdict] = []
        self.began: Callable[[str], None] = _nobody
        """Who hears that a request came in for a surface."""
        self.ended: Callable[[Sequence[Outcome]], None] = _nobody
        """Who hears how requests ended: metrics and log."""
        self.max_body_bytes = config.server.max_body_bytes
        self.max_header_bytes = config.server.max_header_bytes
        self.surface_at = self.routes.at
        self._dropped = FORWARDED if config.server.forwarded == "drop" else frozenset()
        self._forwards = config.server.forwarded == "append"
        self._ids: set[str] = set()

    # -- facts
    def observe(self, event: Event) -> None:
        """Something happened. Never waits, never fails because of who listens."""
        advance(self.fleet, event)
        if not self._unsaid:  # a ``Wave`` but for its call: this is done four times a request
            asyncio.get_running_loop().call_soon(self.tell)
        self._unsaid.append(event)

    def tell(self) -> None:
        """Tell the listeners what they have not heard yet."""
        said, self._unsaid = self._unsaid, []
        tell_all(self.listeners, said)

    def introduce(self, joined: Joined) -> None:
        """A backend said (or configuration says) what it is."""
        self.models.refresh()
        self.observe(joined._replace(models=self.models.served_by(joined.backend)))

    # -- judgement
    def as_arrived(self, surface: Surface, asked: Asked, passport: Passport, request_id: str) -> Arrived:
        """The request as the judgement sees it. Surfaces that generate nothing count as one token of output.

        Raises GatewayError for a model nobody serves.
        """
        model = self.models.resolve(asked.model)
        exact = asked.prompt_tokens
        return make(
            Arrived,
            self.now(),
            request_id,
            model,
            passport.app,
            surface.name,
            asked.prompt_bytes,
            self.models.count(model, asked) if exact is None else exact,
            asked.media,
            asked.cap,
            asked.n,
            asked.stream,
            asked.temperature,
            asked.features,
            asked.content,
            asked.system,
            asked.fingerprint,
            asked.prefixes,
            passport.forced_lane,
            passport.expected_output_tokens if surface.routed else 1,
            random.random(),
            random.random(),
            (),
            "",
        )

    def place(self, arrived: Arrived) -> Decision:
        """Where a new request goes. Raises GatewayError when there is no place for it."""
        self.observe(arrived)
        verdict = decide(self.fleet, arrived)
        self._unsaid.append(verdict)
        if isinstance(verdict, Decision):
            return verdict
        raise no_place(verdict)

    def place_again(self, arrived: Arrived, fault: str) -> Decision | None:
        """Where a request goes whose backend failed; None when it may or can go nowhere else."""
        if fault not in ("stalled", "refused") and not may_retry(self.fleet):
            return None
        if not isinstance(decide(self.fleet, arrived), Decision):
            return None  # and nothing to note: a request that waits on a stalled backend asks at every tick
        self.observe(arrived)  # a replay asks where an Arrived stands, so the decision is taken behind it
        verdict = decide(self.fleet, arrived)
        self._unsaid.append(verdict)
        return verdict if isinstance(verdict, Decision) else None

    # -- the relay's constant parts
    def onward(self, head: Head, backend: Backend, dropped: frozenset[bytes]) -> bytes:
        """What goes to a backend of a client's head, less the headers ``dropped``; the same for all requests with it."""
        key = backend.name, dropped
        lines = head.onward.get(key)
        if lines is None:
            path = self.routes.upstream(head.path)
            target = path + b"?" + head.query if head.query else path
            staying = dropped | self._dropped | named_by_connection(head.headers)
            lines = head.onward[key] = onward_lines(head.method, target, head.headers, backend.upstream, staying)
        return lines

    def added_lines(self, relay: Relay) -> bytes:
        """Header lines the gateway adds towards a backend."""
        if self._forwards:
            return relay.id_line + forwarded_lines(relay.inbound)
        return relay.id_line

    def answer_lines(self, relay: Relay) -> list[bytes]:
        """Header lines that tell the client what was decided."""
        decision, passport = relay.decision, relay.passport
        lines = [relay.id_line]
        if decision is not None:
            lines.append(_decided(decision.lane, decision.workload, decision.backend, decision.reason))
        return lines if passport.origin is None else lines + cors_lines(passport.origin)

    # -- Door
    def refuse_early(self, inbound: Inbound, length: int | None) -> GatewayError | None:
        """See ``Door``. The passport stays with the inbound for the relay."""
        passport = inbound.passport = self.clerk.recall(inbound.head)
        inbound.id = passport.wanted_id or self.clerk.new_id()
        return self.clerk.refusal(passport, length)

    def refused(self, inbound: Inbound, error: GatewayError) -> None:
        """See ``Door``."""
        self.began(inbound.surface.name)
        self.ended((turned_away(inbound, error),))

    def enter(self, inbound: Inbound, surface: Surface) -> None:
        """See ``Door``."""
        passport = inbound.passport or Passport("unnamed")
        inbound.served = relay = Relay(self, inbound, surface, passport, self._unique(inbound.id))
        if self.live:
            self._arrivals.add(relay)
        else:  # alone, so it need not wait for others
            self._begin([relay])

    def _begin(self, relays: list[Relay]) -> None:
        here = [relay for relay in relays if not relay.done]  # a client may leave while others send
        for relay in here:
            self.began(relay.surface.name)
        understood = [relay for relay in here if relay.attempt(Relay.read)]
        if len(understood) == 1:
            understood[0].attempt(Relay.go_alone)
            return
        placed = [relay for relay in understood if relay.attempt(Relay.place)]
        ready = [relay for relay in placed if relay.attempt(Relay.prepare)]
        for relay in ready:
            relay.attempt(Relay.send)

    def error_lines(self, inbound: Inbound) -> list[bytes]:
        """See ``Door``."""
        passport = inbound.passport
        if passport is None:
            return []
        return [b"x-request-id: %b\r\n" % inbound.id.encode(), *cors_lines(passport.origin)]

    def _unique(self, wanted: str) -> str:
        """Clients may repeat a request id while the first one runs; events need one per request."""
        name, number = wanted, 1
        while name in self._ids:
            number += 1
            name = f"{wanted}#{number}"
        self._ids.add(name)
        return name

    # -- the end of a request
    def settled(self, relay: Relay, ended: Ended) -> None:
        """A placed request is over."""
        self._settle([(relay, ended)])

    def _finish(self, relays: list[Relay]) -> None:
        """``settled`` for all of a wave, after their clients have what waited for it."""
        for relay in relays:
            try:
                relay.deliver()
            except Exception:  # whatever it is, it is ours, and the others of the wave get their answers
                log.exception("an answer could not be sent")
                relay.inbound.abort()
        self._settle([(relay, end_of(relay)) for relay in relays])

    def _settle(self, over: list[tuple[Relay, Ended]]) -> None:
        for relay, ended in over:
            self._ids.discard(relay.id)
            self.observe(ended)
        known = self.models.known
        self.ended([told(relay, ended, relay.arrived.model in known) for relay, ended in over])

    def forget(self, relay: Relay) -> None:
        """Its client left before anything was done."""
        self._ids.discard(relay.id)

    def rejected(self, relay: Relay, error: GatewayError) -> None:
        """A request was turned down by us after its body was read."""
        self._ids.discard(relay.id)
        self.observe(Cancelled(self.now(), relay.id))
        self.ended((turned_down(relay, error, self.now()),))

    # -- time passes
    def tick(self) -> None:
        """Several times a second: pulses, hung backends, patience."""
        now = self.now()
        for pulse in self._pulses(now):
            self.observe(pulse)
        for relay in list(self.live):
            try:
                self._look_after(relay, now)
            except Exception:  # the others must not wait for it
                log.exception("request %s could not be looked after", relay.id)

    def _look_after(self, relay: Relay, now: float) -> None:
        fault = overdue(relay, now)
        if fault is not None:
            relay.give_up(fault)
        elif unread(relay, now):
            inbound = relay.inbound
            relay.client_left()
            inbound.abort()
        elif relay.backend is not None and self.fleet.backends[relay.backend.name].stalled:
            relay.requeue()

    def _pulses(self, now: float) -> list[Pulse]:
        """One per backend with streams in flight; answers that do not stream are silent by nature."""
        streams: dict[str, list[Relay]] = {}
        for relay in self.live:
            if relay.asked.stream and not relay.paused and relay.backend is not None:
                streams.setdefault(relay.backend.name, []).append(relay)
        return [_pulse(now, name, relays) for name, relays in sorted(streams.items())]

    def sweep(self) -> None:
        """Once a second: idle connections."""
        for backend in self.backends.values():
            backend.pool.sweep()

    def close(self) -> None:
        """End what is still under way, close the connections to the backends, and leave nothing unsaid."""
        for relay in list(self.live):
            relay.client_left()
        for backend in self.backends.values():
            backend.pool.close()
        self.tell()
