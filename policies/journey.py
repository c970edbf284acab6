"""A request on its way: one fold per event of its life, from arrival to one of its ends."""

from heapq import heappop, heappush
from typing import Final

from policies.backend import Backend
from policies.breaker import HEALTHY_FAULTS
from policies.events import (
    Arrived,
    Cancelled,
    Dispatched,
    Failed,
    Finished,
    FirstToken,
    Refused,
)
from policies.gain import DOES_NOT_PAY, MAX_CLASSES, PROBING
from policies.lesson import Lesson
from policies.live import Live, lesson
from policies.state import PROMPTS, Fleet, assess, health_changed, take_stock
from policies.teach import teach

BURST: Final = 50.0
"""Lessons of a class that may come at once: two waves of a batch, and enough for any verdict."""


def arrived(fleet: Fleet, event: Arrived) -> None:
    """A client asked: expect, count, and note the prompt. The same id again (a re-queue) only updates what was asked."""
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
        if len(fleet.prompts) >= PROMPTS // 2:
            fleet.earlier_prompts, fleet.prompts = fleet.prompts, {}
    if len(fleet.live) > fleet.settings.max_requests:
        release(fleet.live.pop(next(iter(fleet.live))), event.at)


def release(live: Live, at: float) -> None:
    """Take a request off its backend's counts."""
    backend = live.backend
    if backend is None:
        return
    backend.drop(at, live.charge, live.output_tokens, live.first_at is None)
    if live.trial:
        backend.breaker.trying = max(0, backend.breaker.trying - 1)
        live.trial = False
    live.backend = None


def dispatched(fleet: Fleet, event: Dispatched) -> None:
    """It was sent; sent again, it moves."""
    live, backend = fleet.live.get(event.id), fleet.backends.get(event.backend)
    if live is None or backend is None:
        return
    if live.backend is not None:
        release(live, event.at)
    tokens = live.uncached(backend.name)
    live.charge, live.expected_cached = tokens, live.input_tokens - tokens
    live.prefill_load = tokens + backend.waiting_tokens
    backend.take(event.at, tokens, live.output_tokens)
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
    backend.prefill_done(live.charge, live.output_tokens)


def first_token(fleet: Fleet, event: FirstToken) -> None:
    """Its prefill is over. Answers that do not stream show this too late; theirs is presumed."""
    live = fleet.live.get(event.id)
    if live is None or live.backend is None:
        return
    live.backend.heard_at = max(live.backend.heard_at, event.at)
    if live.first_at is None and live.arrived.stream:
        _have_first(live, live.backend, event.at)


def finished(fleet: Fleet, event: Finished) -> None:
    """It ended well: off the counts, and into the lessons."""
    live = fleet.live.pop(event.id, None)
    if live is None or live.backend is None:
        return
    backend = live.backend
    backend.touch(event.at)
    good = event.status < 300
    learnt = lesson(live, backend, event) if good and _may_teach(fleet, live, backend, event.at) else None
    release(live, event.at)
    _alive(fleet, backend, event.at)
    backend.request_seconds += 0.05 * (event.at - live.dispatched_at - backend.request_seconds)
    if good:
        backend.finished_at = event.at
        backend.finished += 1
        fleet.applications.count(live.arrived.app, backend.lane)
    if learnt is not None:
        _pass_on(fleet, learnt, event.at)


def _pass_on(fleet: Fleet, learnt: Lesson, at: float) -> None:
    """To our own learners, and to the other replicas."""
    teach(fleet, learnt, at)
    fleet.outbox.append(learnt)


def _may_teach(fleet: Fleet, live: Live, backend: Backend, at: float) -> bool:
    """Whether the class has not taught enough here lately: a virtual clock per class (GCRA; ITU-T I.371) that lets
    ``BURST`` lessons come at once."""
    rate = fleet.settings.lessons_per_second
    if rate <= 0.0:
        return True
    clocks = backend.taught_until
    until = clocks.get(live.gain_class, at)
    if until > at + BURST / rate:
        return False
    clocks[live.gain_class] = (until if until > at else at) + 1.0 / rate
    if len(clocks) > MAX_CLASSES:
        clocks.clear()
    return True


def _alive(fleet: Fleet, backend: Backend, at: float) -> None:
    """A backend answered: it neither hangs nor is it ill."""
    backend.heard_at = max(backend.heard_at, at)
    if backend.breaker.success() or backend.stalled:
        backend.stalled = False
        fleet.ready.clear()


def cancelled(fleet: Fleet, event: Cancelled) -> None:
    """The client left: a lower bound on the length, and nothing else."""
    live = fleet.live.pop(event.id, None)
    if live is None or live.backend is None:
        return
    backend = live.backend
    learnt = lesson(live, backend, event) if _may_teach(fleet, live, backend, event.at) else None
    release(live, event.at)
    if learnt is not None and learnt.output_tokens:
        _pass_on(fleet, learnt, event.at)
    if backend.breaker.state != "closed":
        fleet.ready.clear()


def failed(fleet: Fleet, event: Failed) -> None:
    """A backend did not do its part."""
    live = fleet.live.get(event.id)
    if live is None:
        return
    if live.backend is not None and live.backend.name == event.backend:
        release(live, event.at)
    if event.final:
        release(live, event.at)
        del fleet.live[event.id]
    elif event.fault not in ("stalled", "refused"):
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
    health_changed(fleet)


def _wake(fleet: Fleet) -> None:
    for backend in fleet.backends.values():
        backend.breaker.wake(fleet.now)
    health_changed(fleet)


def refused(fleet: Fleet, event: Refused) -> None:
    """A backend cannot serve a feature; it will not be asked again."""
    live, backend = fleet.live.get(event.id), fleet.backends.get(event.backend)
    if live is not None and live.backend is not None and live.backend.name == event.backend:
        release(live, event.at)
    if backend is not None and len(backend.refuses) < 64:
        backend.refuses |= {event.feature}
        take_stock(fleet)
