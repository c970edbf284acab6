"""One request on its way: sent to where the judgement says, its answer passed back byte for byte.

The relay acts and decides nothing: which backend, whether another one may be tried, and when a
backend counts as hung are answers of ``gateway``. It holds the answer's head until the first body
byte, so that until then a failed or hung backend can be replaced unseen; after it nothing is retried.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from policies.decision import Decision
from policies.events import SYNTHETIC, Cancelled, Dispatched, Failed, FirstToken, Refused
from policies.make import make
from proxy import errors
from proxy.errors import GatewayError
from proxy.meter import meter_for
from proxy.outgoing import outgoing
from proxy.patience import aged
from proxy.surfaces.base import Asked, Facts, Meter, Surface
from proxy.surfaces.long_text import check_long_text
from proxy.wire.answer import AnswerHead
from proxy.wire.client import Exchange
from proxy.wire.coding import without_coding
from proxy.wire.headers import Headers
from proxy.wire.inbound import Inbound, Passport, answer_error

if TYPE_CHECKING:
    from proxy.backends import Backend
    from proxy.gateway import Gateway

log = logging.getLogger("draftlane.relay")
NOTHING_ASKED: Final = Asked()
NOTHING_TOLD: Final = Facts()
REFUSAL_BYTES: Final = 65536
"""A 400 longer than this is no refusal of a feature; it is passed on as it comes."""


class Relay:
    """See the module. Hears the client as ``Served`` and the backend as ``Receiver``."""

    __slots__ = (
        "_collected",
        "_document",
        "_facts",
        "_length",
        "_strip",
        "answer_head",
        "answered_status",
        "arrived",
        "asked",
        "attempts",
        "backend",
        "began_at",
        "decision",
        "decoded",
        "done",
        "exchange",
        "first_token_at",
        "gap",
        "gateway",
        "heard_at",
        "id",
        "id_line",
        "inbound",
        "meter",
        "own_seconds",
        "passport",
        "paused",
        "requeues",
        "sent_at",
        "status",
        "surface",
    )

    def __init__(
        self, gateway: "Gateway", inbound: Inbound, surface: Surface, passport: Passport, request_id: str
    ) -> None:
        self.gateway = gateway
        self.inbound = inbound
        self.surface = surface
        self.id = request_id
        self.id_line = b"x-request-id: %b\r\n" % inbound.id.encode()
        self.passport = passport
        self.began_at = self.sent_at = self.heard_at = gateway.now()
        self.first_token_at: float | None = None
        self.asked = NOTHING_ASKED
        self.decision: Decision | None = None
        self.backend: Backend | None = None
        self.exchange: Exchange | None = None
        self.meter: Meter | None = None
        self.status = 0
        self.answered_status = 0
        """What the client got; 0 before its head is sent."""
        self.own_seconds = 0.0
        self.gap = 0.0
        """Longest silence between two reads since the last pulse, first token seen."""
        self.attempts = 0
        self.requeues = 0
        self.paused = False
        self.done = False
        self.decoded: bytes | None = None
        """The body without its content coding, where it has one."""
        self.answer_head: AnswerHead | None = None
        self._length: int | None = None
        self._strip = False
        self._collected: list[bytes] | None = None
        self._document: bytes | None = None
        """The body of an answer that came whole."""
        self._facts: Facts | None = None

    # -- the stages of setting out, each done for all requests of a wave before the next
    def attempt(self, stage: Callable[["Relay"], None]) -> bool:
        """Go through a stage; False when the request ends there."""
        try:
            stage(self)
        except GatewayError as error:
            self._reject(error)
        except Exception:  # whatever it is, it is ours, and nothing may be left counted
            log.exception("request could not be worked on")
            self._reject(GatewayError("internal", "The gateway failed to handle this request."))
        return not self.done

    def read(self) -> None:
        """Look at what the client asks for."""
        self.asked = self.surface.read(self._readable(), self.inbound.head.content_type)

    def place(self) -> None:
        """Ask where it goes, and have it counted there."""
        self._find_place()
        self._count()

    def go_alone(self) -> None:
        """All that follows when no other request waits for this one to be counted: its bytes first, the books after."""
        self._find_place()
        self._send()
        self._count()

    def begin_at(self, decision: Decision) -> None:
        """Send a request of our own to a given backend."""
        gateway = self.gateway
        self.asked = self.surface.read(self.inbound.body(), "application/json")
        self.arrived = gateway.as_arrived(self.surface, self.asked, self.passport, self.id)._replace(surface=SYNTHETIC)
        gateway.observe(self.arrived)
        self._assign(decision)
        self._count()
        self._send()

    def _read_closer(self) -> None:
        """A backend failed. That is the client's doing where a text that was left out is no JSON. Raises GatewayError."""
        if self.asked.text_left_out and not self.inbound.started:
            check_long_text(self.decoded or self.inbound.body())

    def _readable(self) -> bytes:
        """The body for looking at. Raises GatewayError."""
        body = self.inbound.body()
        plain = without_coding(body, self.inbound.head.content_coding, self.gateway.max_body_bytes)
        if plain is not body:
            self.decoded = plain
        return plain

    # -- to the backend
    def _find_place(self) -> None:
        self.arrived = self.gateway.as_arrived(self.surface, self.asked, self.passport, self.id)
        self._assign(self.gateway.place(self.arrived))

    def _assign(self, decision: Decision) -> None:
        gateway = self.gateway
        self.decision = decision
        self.backend = gateway.backends[decision.backend]
        self.sent_at = self.heard_at = self.arrived.at  # as good as now, and one look at the clock less
        self.answer_head = self.meter = self._collected = self._facts = None
        gateway.live.add(self)
        self.attempts += 1

    def _count(self) -> None:
        """From here on the backend counts it: the next decision already knows."""
        assert self.decision is not None
        self.gateway.observe(make(Dispatched, self.sent_at, self.id, self.decision.backend))

    def _send(self) -> None:
        self.prepare()
        self.send()

    def prepare(self) -> None:
        """Make ready what goes to the backend it was assigned to."""
        backend = self.backend
        assert backend is not None
        head, body, self._strip = outgoing(self, backend)
        self.exchange = backend.pool.prepare(head, body, self, self.inbound.head.method == b"HEAD")

    def send(self) -> None:
        """Send it."""
        if self.attempts == 1:
            self.own_seconds = self.gateway.now() - self.began_at
        if self.exchange is not None:
            self.exchange.send()

    # -- Receiver: from the backend
    def head(self, answer: AnswerHead, length: int | None) -> None:
        """Keep the head back until the first body byte."""
        status = self.status = answer.status
        self.heard_at = self.gateway.now()
        if answer.fault is not None and not answer.for_client:
            if not self.attempt(Relay._read_closer) or self._elsewhere(answer.fault, status):
                return
        elif status == 400 and self.decision is not None and self.decision.lane == "speculative":
            self._collected = []
        self.answer_head, self._length = answer, length
        self._strip = self._strip and answer.is_stream and status == 200
        reader = self.surface.reader
        if reader is not None and status == 200:
            self.meter = meter_for(reader(), answer.content_type, answer.content_coding, self._strip)

    def body(self, data: bytes) -> None:
        """The hot path: meter, write."""
        heard_at = self.heard_at
        now = self.heard_at = self.gateway.now()
        meter = self.meter
        if meter is not None:
            if self.first_token_at is None:
                self._first_bytes(meter, data, now)
                return
            if now - heard_at > self.gap:
                self.gap = now - heard_at
            data = self._fed(meter, data, now)
        elif self._collected is not None:
            self._collect(data)
            return
        self._pass_on(data)

    def _first_bytes(self, meter: Meter, data: bytes, now: float) -> None:
        """Somebody waits for them: what may go on before it is read, does."""
        if meter.leaves(data):
            self._pass_on(data)
            self._fed(meter, data, now)
        else:
            self._pass_on(self._fed(meter, data, now))
        if meter is self.meter and meter.first_token_at is not None:
            self._first_token(meter.first_token_at)

    def _fed(self, meter: Meter, data: bytes, now: float) -> bytes:
        """What the meter has for the client."""
        try:
            return meter.feed(data, now)
        except Exception:  # noqa: BLE001  # whatever it is, it is ours, and the client's answer goes on
            self._meter_broke()
            return data

    def _pass_on(self, data: bytes) -> None:
        if data:
            if not self.inbound.started:
                self._start()
            self.inbound.write(data)

    def _first_token(self, at: float) -> None:
        """From now on the events are alike: whole chunks may be passed on as they came."""
        self.first_token_at = at
        if self.exchange is not None:
            self.exchange.pass_on = self.chunks
        self.gateway.observe(make(FirstToken, at, self.id))

    def chunks(self, data: bytes, payload: bytes) -> None:
        """``body`` for whole chunks, with the framing they have. For every event, hence without calls that could be saved."""
        heard_at = self.heard_at
        now = self.heard_at = self.gateway.now()
        if now - heard_at > self.gap:
            self.gap = now - heard_at
        meter = self.meter
        if meter is not None:
            try:
                left = meter.feed(payload, now)
            except Exception:  # noqa: BLE001  # as in _fed
                self._meter_broke()
            else:
                if left is not payload:
                    self.inbound.write(left)
                    return
        self.inbound.write_chunks(data, payload)

    def end(self, trailers: Headers) -> None:
        """The answer is complete."""
        self.exchange = None
        if self._collected is not None and self._refused():
            return
        if not self.inbound.started:
            self._start()
        for piece in self._collected or ():
            self.inbound.write(piece)
        if self.meter is not None:
            self.inbound.write(self._held_back())
        self.inbound.finish(trailers)
        self._over()

    def whole(self, answer: AnswerHead, body: bytes) -> bool:
        """A plain document is read when the client has it, which, where others are under way, waits for their answers."""
        if answer.status != 200 or not answer.is_plain or body[0] not in b"{[":
            return False
        self.status = self.answered_status = 200
        self.answer_head, self._document = answer, body
        self.exchange = None
        if len(self.gateway.live) == 1:
            self.deliver()
        self._over()
        return True

    def deliver(self) -> None:
        """Send a ``whole`` answer to the client, if that was not done before."""
        answer, document, inbound = self.answer_head, self._document, self.inbound
        if document is None or answer is None or inbound.started:
            return
        inbound.answer(200, answer.reason, [answer.lines, *self.gateway.answer_lines(self)], document)

    def _over(self) -> None:
        """The answer is complete; the rest is nobody's hurry."""
        self.heard_at = self.gateway.now()
        self._close()
        self.gateway.over.add(self)

    def again(self) -> bool:
        """See ``patience.aged``."""
        return aged(self, self.gateway.now())

    def failed(self, fault: str) -> None:
        """The backend did not do its part."""
        self.exchange = None
        if not self.attempt(Relay._read_closer) or self._elsewhere(fault, None):
            return
        gateway, backend = self.gateway, self.backend
        assert backend is not None
        self._tell(errors.from_fault(fault))
        self._settle(Failed(gateway.now(), self.id, backend.name, fault))

    def _tell(self, error: GatewayError) -> None:
        """The client learns that its answer will not be complete, in whatever phase it is."""
        if not self.inbound.started:
            self._answer(error)
            return
        answer = self.answer_head
        if answer is not None and answer.is_stream and not answer.is_coded:
            self.inbound.write(self.surface.failure_event(error.message, error.code or "backend_failed"))
        self.inbound.abort()

    def _elsewhere(self, fault: str, status: int | None) -> bool:
        """Try the next backend if nothing was sent to the client and the judgement allows it."""
        backend = self.backend
        if self.inbound.started or backend is None or self.arrived.surface == SYNTHETIC:
            return False
        excluded = (*self.arrived.excluded, backend.name)
        arrived = self.arrived._replace(at=self.gateway.now(), excluded=excluded, after=fault)
        decision = self.gateway.place_again(arrived, fault)
        if decision is None:
            return False
        if self.exchange is not None:
            self.exchange.cancel()
        self.gateway.observe(Failed(arrived.at, self.id, backend.name, fault, status, final=False))
        self.arrived = arrived
        self._assign(decision)
        self._count()
        self._send()
        return True

    def requeue(self) -> bool:
        """The backend hangs: send the request elsewhere while its client has seen nothing."""
        if self.done or self.inbound.started or not self._elsewhere("stalled", None):
            return False
        self.requeues += 1
        return True

    def give_up(self, fault: str) -> None:
        """Patience ran out."""
        if self.exchange is not None:
            self.exchange.cancel()
        self.failed(fault)

    # -- Served: from the client
    def client_left(self) -> None:
        """Stop the backend's work at once, in whatever phase."""
        if self.done:
            return
        if self.decision is None:  # nobody knows of it yet
            self._close()
            self.gateway.forget(self)
            return
        if self.exchange is not None:
            self.exchange.cancel()
            self.exchange = None
        events = 0 if self.meter is None else self.meter.events
        facts = self.facts()
        self._settle(Cancelled(self.gateway.now(), self.id, events, facts.completion_tokens))

    def stopped(self) -> None:
        """The grace period is over: end visibly, and not by the backend's fault."""
        inbound = self.inbound
        if self.done:
            self.deliver()
            return
        inbound.served = None
        self.client_left()
        self._tell(GatewayError("shutting_down", "The gateway is shutting down.", retry_after_seconds=1))

    def client_slow(self) -> None:
        """Let the backend wait."""
        self.paused = True
        if self.exchange is not None:
            self.exchange.pause()

    def client_ready(self) -> None:
        """Read on."""
        self.paused = False
        self.heard_at = self.gateway.now()
        if self.exchange is not None:
            self.exchange.resume()

    # -- the small parts
    def _start(self) -> None:
        answer = self.answer_head
        assert answer is not None
        self.answered_status = answer.status
        length = None if self._strip else self._length
        self.inbound.start(answer.status, answer.reason, [answer.lines, *self.gateway.answer_lines(self)], length)

    def _meter_broke(self) -> None:
        """A fault of ours must not cost the client its answer."""
        log.exception("an answer could not be read; the client gets it all the same")
        self.meter = None

    def _held_back(self) -> bytes:
        assert self.meter is not None
        try:
            return self.meter.end(self.gateway.now())
        except Exception:  # noqa: BLE001  # as in _fed
            self._meter_broke()
            return b""

    def _collect(self, data: bytes) -> None:
        """Hold a 400 of the speculative lane until it is known whether it refuses a feature."""
        collected = self._collected
        assert collected is not None
        collected.append(data)
        if sum(map(len, collected)) > REFUSAL_BYTES:
            self._collected = None
            self._start()
            self.inbound.write(b"".join(collected))

    def _refused(self) -> bool:
        """A 400 because the lane speculates: remember it, ask the other lane."""
        backend, collected = self.backend, self._collected
        assert backend is not None
        assert collected is not None
        feature = backend.engine.refused_feature(self.status, b"".join(collected), self.asked.features)
        if feature is None:
            return False
        self.gateway.observe(Refused(self.gateway.now(), self.id, backend.name, feature))
        return self._elsewhere("refused", self.status)

    def facts(self) -> Facts:
        """What the answer told, gathered once: to be asked for when the request is over."""
        facts = self._facts
        if facts is None:
            facts = self._facts = self._told()
        return facts

    def _told(self) -> Facts:
        try:
            if self.meter is not None:
                return self.meter.facts()
            if self._document is None or self.surface.reader is None:
                return NOTHING_TOLD
            reader = self.surface.reader()
            reader.document(self._document)
            return reader.tally.facts(0)
        except Exception:  # noqa: BLE001  # as in _fed
            self._meter_broke()
            return NOTHING_TOLD

    def _answer(self, error: GatewayError) -> None:
        lines = self.gateway.answer_lines(self)
        self.answered_status = error.status
        answer_error(self.inbound, error, self.surface.dialect, lines)

    def _reject(self, error: GatewayError) -> None:
        """Turned down by us."""
        if self.exchange is not None:
            self.exchange.cancel()
        self._close()
        self._answer(error)
        self.gateway.rejected(self, error)

    def _settle(self, outcome: Failed | Cancelled) -> None:
        """It ends otherwise than by a complete answer."""
        if not self.done:
            self._close()
            self.gateway.settled(self, outcome)

    def _close(self) -> None:
        """The one way out: every request that was placed ends here, once."""
        self.done = True
        self.exchange = None
        self.gateway.live.discard(self)
