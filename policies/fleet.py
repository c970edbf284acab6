"""The state of everything the judgement knows, and the fold that moves it.

``advance(fleet, event)`` is the only writer; ``decide`` and ``snapshot`` only read. Events of unknown requests or
backends change nothing: late, doubled and misordered facts are normal between replicas and after restarts.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from policies.applications import Applications
from policies.backend import Backend
from policies.breaker import HEALTHY_FAULTS, OPEN
from policies.events import (
    Arrived,
    Cancelled,
    Dispatched,
    Event,
    Failed,
    Finished,
    FirstToken,
    Joined,
    Left,
    PeerLearnt,
    PeerLoad,
    PeerLost,
    Probed,
    Pulse,
    Refused,
    Scraped,
)
from policies.gain import DOES_NOT_PAY, PROBING, Verdicts
from policies.inputs import Inputs
from policies.lengths import Lengths
from policies.lesson import Lesson
from policies.live import Live, lesson
from policies.peers import Heard, read_facts
from policies.prefixes import Prefixes
from policies.settings import PolicySettings
from policies.teach import teach
from policies.workload import gain_class

PROMPTS = 20_000
"""Prompt fingerprints remembered to tell repeats."""
OUTBOX = 4_096
"""Lessons kept for the other replicas until they are taken."""


class Fleet:
    """One mutable value. Read it freely; change it by ``advance`` only."""

    __slots__ = (
        "applications",
        "backends",
        "cold",
        "heard",
        "inputs",
        "lengths",
        "live",
        "now",
        "outbox",
        "prefixes",
        "presumed",
        "prompts",
        "ready",
        "retries",
        "settings",
        "touchy",
        "turn",
        "verdicts",
        "wake_at",
    )

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.now = 0.0
        """Latest time any event told."""
        self.backends: dict[str, Backend] = {}
        """In order of joining, which also breaks ties."""
        self.live: OrderedDict[str, Live] = OrderedDict()
        self.lengths = Lengths(settings.predictor)
        self.inputs = Inputs(settings.predictor)
        self.prefixes = Prefixes(settings.prefixes)
        self.verdicts = Verdicts(settings.verdict)
        self.applications = Applications()
        self.prompts: OrderedDict[int, None] = OrderedDict()
        self.presumed: list[tuple[float, str]] = []
        """Heap of (time, id): when an answer that does not stream probably has its first token."""
        self.heard: dict[str, Heard] = {}
        self.outbox: deque[Lesson] = deque(maxlen=OUTBOX)
        """Lessons of this replica, for the others to learn; whoever shares takes them from the left."""
        self.ready: dict[str, tuple[Backend, ...]] = {}
        """Cache of ``decide.candidates`` per model; emptied whenever any backend's health changes."""
        self.wake_at = float("inf")
        """When the next resting or busy backend may be looked at again."""
        self.retries = float(settings.admission.retry_burst)
        """Retries that may happen now."""
        self.cold = True
        """Some backend is not warm; while False nobody needs to look."""
        self.touchy = frozenset[str]()
        """Features that any backend refuses."""
        self.turn = 0
        """Requests dispatched; the round of ``round-robin``."""


def take_stock(fleet: Fleet) -> None:
    """Renew what is cached about all backends together: after one joined, left, warmed up or refused something."""
    backends = fleet.backends.values()
    fleet.cold = not all(backend.warm for backend in backends)
    fleet.touchy = frozenset[str]().union(*[backend.refuses for backend in backends])
    fleet.ready.clear()


def assess(fleet: Fleet, arrived: Arrived) -> Live:
    """What to expect of a request. Changes nothing."""
    live = Live(arrived)
    live.input_tokens = fleet.inputs.estimate(arrived)
    predicted = fleet.lengths.predict(arrived, live.input_tokens)
    live.output_tokens, live.output_level, live.output_source = predicted
    live.repeated = arrived.fingerprint != 0 and arrived.fingerprint in fleet.prompts
    live.gain_class = gain_class(arrived, live.repeated)
    _find_cached(fleet, live)
    return live


def _find_cached(fleet: Fleet, live: Live) -> None:
    arrived = live.arrived
    if not arrived.prefixes:
        share = fleet.inputs.cached_share(arrived)
        if share > 0.0:
            live.cached = dict.fromkeys(fleet.backends, share * live.input_tokens)
        return
    bytes_cached, live.home = fleet.prefixes.match(arrived.prefixes, arrived.at)
    if bytes_cached:
        per_byte = live.input_tokens / max(1, arrived.prompt_bytes)
        backends = fleet.backends
        live.cached = {
            name: size * per_byte * backends[name].cache_trust
            for name, size in bytes_cached.items()
            if name in backends
        }


def _arrived(fleet: Fleet, event: Arrived) -> None:
    if event.at >= fleet.wake_at:
        _wake(fleet)
    if fleet.presumed and fleet.presumed[0][0] <= event.at:
        _presume(fleet, event.at)
    known = fleet.live.get(event.id)
    if known is not None:
        known.arrived = event
        return
    live = fleet.live[event.id] = assess(fleet, event)
    state, live.probe_lane = fleet.verdicts.arrive(live.gain_class, event.at)
    live.averse = state in (DOES_NOT_PAY, PROBING)
    admission = fleet.settings.admission
    fleet.retries = min(float(admission.retry_burst), fleet.retries + admission.retry_share)
    if event.fingerprint and not live.repeated:
        fleet.prompts[event.fingerprint] = None
        if len(fleet.prompts) > PROMPTS:
            fleet.prompts.popitem(last=False)
    if len(fleet.live) > fleet.settings.max_requests:
        _, oldest = fleet.live.popitem(last=False)
        _release(oldest, event.at)


def _release(live: Live, at: float) -> None:
    """Take a request off its backend's counts."""
    backend = live.backend
    if backend is None:
        return
    backend.drop(at, live.charge, live.first_at is None)
    if live.trial:
        backend.breaker.trying = max(0, backend.breaker.trying - 1)
        live.trial = False
    live.backend = None


def _dispatched(fleet: Fleet, event: Dispatched) -> None:
    live, backend = fleet.live.get(event.id), fleet.backends.get(event.backend)
    if live is None or backend is None:
        return
    if live.backend is not None:
        _release(live, event.at)
    tokens = live.uncached(backend.name)
    live.charge, live.expected_cached = tokens, live.input_tokens - tokens
    live.prefill_load = tokens + backend.waiting_tokens
    backend.take(event.at, tokens)
    live.backend, live.dispatched_at, live.first_at = backend, event.at, None
    live.crowd_at, live.prefilled_at = backend.crowd_integral, backend.prefilled
    fleet.turn += 1
    if backend.breaker.state != "closed":
        backend.breaker.trying += 1
        live.trial = True
        fleet.ready.clear()
    _follow(fleet, live, backend)


def _follow(fleet: Fleet, live: Live, backend: Backend) -> None:
    """Consequences of a dispatch: caches fill, probes are used up, silent answers get a presumed first token."""
    arrived = live.arrived
    if arrived.prefixes:
        fleet.prefixes.remember(arrived.prefixes, backend.name, live.dispatched_at)
    if live.probe_lane == backend.lane:
        fleet.verdicts.probing(live.gain_class)
    if not arrived.stream:
        wait = backend.speed.start + backend.prefill * live.prefill_load
        heappush(fleet.presumed, (live.dispatched_at + min(wait, 600.0), arrived.id))


def _presume(fleet: Fleet, now: float) -> None:
    while fleet.presumed and fleet.presumed[0][0] <= now:
        at, request = heappop(fleet.presumed)
        live = fleet.live.get(request)
        if live is not None and live.backend is not None and live.first_at is None and at >= live.dispatched_at:
            _have_first(live, live.backend, at)
            live.presumed = True


def _have_first(live: Live, backend: Backend, at: float) -> None:
    backend.touch(at)
    live.first_at, live.presumed = at, False
    live.crowd_at, live.prefilled_at = backend.crowd_integral, backend.prefilled + live.charge
    backend.prefill_done(live.charge)


def _first_token(fleet: Fleet, event: FirstToken) -> None:
    live = fleet.live.get(event.id)
    if live is None or live.backend is None:
        return
    live.backend.heard_at = max(live.backend.heard_at, event.at)
    if live.first_at is None and live.arrived.stream:
        _have_first(live, live.backend, event.at)


def _finished(fleet: Fleet, event: Finished) -> None:
    live = fleet.live.pop(event.id, None)
    if live is None or live.backend is None:
        return
    backend = live.backend
    backend.touch(event.at)
    learnt = lesson(live, backend, event)
    _release(live, event.at)
    _alive(fleet, backend, event.at)
    backend.request_seconds += 0.05 * (event.at - live.dispatched_at - backend.request_seconds)
    if event.status < 300:
        backend.finished_at = event.at
        _learn(fleet, learnt, event.at)
        fleet.outbox.append(learnt)


def _learn(fleet: Fleet, learnt: Lesson, at: float) -> None:
    teach(fleet, learnt, at)
    if fleet.cold:
        take_stock(fleet)


def _alive(fleet: Fleet, backend: Backend, at: float) -> None:
    """A backend answered: it neither hangs nor is it ill."""
    backend.heard_at = max(backend.heard_at, at)
    if backend.breaker.success() or backend.stalled:
        backend.stalled = False
        fleet.ready.clear()


def _cancelled(fleet: Fleet, event: Cancelled) -> None:
    live = fleet.live.pop(event.id, None)
    if live is None or live.backend is None:
        return
    backend = live.backend
    learnt = lesson(live, backend, event)
    _release(live, event.at)
    if learnt.output_tokens:
        _learn(fleet, learnt, event.at)
        fleet.outbox.append(learnt)
    if backend.breaker.state != "closed":
        fleet.ready.clear()


def _failed(fleet: Fleet, event: Failed) -> None:
    live = fleet.live.get(event.id)
    if live is None:
        return
    if live.backend is not None and live.backend.name == event.backend:
        _release(live, event.at)
    if event.final:
        _release(live, event.at)
        del fleet.live[event.id]
    elif event.fault != "stalled":
        fleet.retries = max(0.0, fleet.retries - 1.0)
    backend = fleet.backends.get(event.backend)
    if backend is not None:
        _blame(fleet, backend, event)


def _blame(fleet: Fleet, backend: Backend, event: Failed) -> None:
    if event.fault == "busy":
        backend.busy_until = event.at + fleet.settings.admission.busy_seconds
    elif event.fault == "stalled":
        backend.breaker.hang(event.at)
        backend.stalled = backend.own_in_flight > 0
    if event.fault not in HEALTHY_FAULTS:
        backend.breaker.failure(event.at)
    _health_changed(fleet)


def _health_changed(fleet: Fleet) -> None:
    fleet.ready.clear()
    wake_at = float("inf")
    for backend in fleet.backends.values():
        if backend.breaker.state == OPEN:
            wake_at = min(wake_at, backend.breaker.reopens_at)
        if backend.busy_until > fleet.now:
            wake_at = min(wake_at, backend.busy_until)
    fleet.wake_at = wake_at


def _wake(fleet: Fleet) -> None:
    for backend in fleet.backends.values():
        backend.breaker.wake(fleet.now)
    _health_changed(fleet)


def _refused(fleet: Fleet, event: Refused) -> None:
    live, backend = fleet.live.get(event.id), fleet.backends.get(event.backend)
    if live is not None and live.backend is not None and live.backend.name == event.backend:
        _release(live, event.at)
    if backend is not None and len(backend.refuses) < 64:
        backend.refuses |= {event.feature}
        take_stock(fleet)


def _joined(fleet: Fleet, event: Joined) -> None:
    known = fleet.backends.get(event.backend)
    if known is None or known.lane != event.lane:
        fresh = Backend(event, fleet.settings)
        if known is not None:
            _move(fleet, known, fresh, event.at)
        fleet.backends[event.backend] = fresh
    else:
        known.describe(event)
    take_stock(fleet)


def _move(fleet: Fleet, old: Backend, new: Backend, at: float) -> None:
    """A backend changed its lane: what it had learnt is void, what it has in flight is not."""
    for live in fleet.live.values():
        if live.backend is old:
            waiting = live.first_at is None
            old.drop(at, live.charge, waiting)
            new.take(at, live.charge)
            if not waiting:
                new.prefill_done(live.charge)
            live.backend, live.trial = new, False
            live.crowd_at, live.prefilled_at = new.crowd_integral, new.prefilled
    new.peers, old.peers = old.peers, {}
    new.sum_peers()


def _left(fleet: Fleet, event: Left) -> None:
    if fleet.backends.pop(event.backend, None) is not None:
        fleet.prefixes.forget(event.backend)
        _health_changed(fleet)
        take_stock(fleet)


def _probed(fleet: Fleet, event: Probed) -> None:
    backend = fleet.backends.get(event.backend)
    if backend is None:
        return
    if not event.ok:
        backend.breaker.failure(event.at)
    elif backend.breaker.state == OPEN and not backend.breaker.hung:
        backend.breaker.reopens_at = event.at
        backend.breaker.wake(event.at)
    _health_changed(fleet)


def _pulse(fleet: Fleet, event: Pulse) -> None:
    backend = fleet.backends.get(event.backend)
    if backend is not None and backend.hear_pulse(event, fleet.settings):
        if not backend.stalled and backend.breaker.hung:
            backend.breaker.success()
        _health_changed(fleet)


def _scraped(fleet: Fleet, event: Scraped) -> None:
    backend = fleet.backends.get(event.backend)
    if backend is not None:
        backend.hear_scrape(event)
        backend.settle(fleet.settings.cold_requests)


def _peer_load(fleet: Fleet, event: PeerLoad) -> None:
    backend = fleet.backends.get(event.backend)
    if backend is not None:
        backend.hear_peer(event)


def _peer_learnt(fleet: Fleet, event: PeerLearnt) -> None:
    heard = fleet.heard.setdefault(event.replica, Heard())
    learnt = read_facts(event.facts) if heard.is_news(event.sequence) else None
    if learnt is not None:
        _learn(fleet, learnt, event.at)
        if learnt.prefix and learnt.backend in fleet.backends:
            fleet.prefixes.remember(((learnt.prefix, learnt.prefix_bytes),), learnt.backend, event.at)


def _peer_lost(fleet: Fleet, event: PeerLost) -> None:
    fleet.heard.pop(event.replica, None)
    for backend in fleet.backends.values():
        backend.lose_peer(event.replica, event.at)


_FOLDS: dict[type[Event], Callable[[Fleet, Any], None]] = {
    Arrived: _arrived,
    Dispatched: _dispatched,
    FirstToken: _first_token,
    Finished: _finished,
    Failed: _failed,
    Cancelled: _cancelled,
    Refused: _refused,
    Joined: _joined,
    Left: _left,
    Probed: _probed,
    Pulse: _pulse,
    Scraped: _scraped,
    PeerLoad: _peer_load,
    PeerLearnt: _peer_learnt,
    PeerLost: _peer_lost,
}
"""One fold per event; a table, because a chain of class patterns costs 1 µs by the time it reaches the last."""


def advance(fleet: Fleet, event: Event) -> None:
    """Take note of what happened. Never raises, whatever the order of events."""
    if event.at > fleet.now:
        fleet.now = event.at
    _FOLDS[type(event)](fleet, event)


__all__ = ["Fleet", "Lesson", "advance", "assess", "take_stock"]
