"""Backends and other replicas come, go, fall ill and tell of themselves: one fold per event."""

from policies.backend import Backend
from policies.breaker import OPEN
from policies.events import (
    Joined,
    Left,
    PeerLearnt,
    PeerLoad,
    PeerLost,
    Probed,
    Pulse,
    Scraped,
)
from policies.lesson import cancelled
from policies.peers import Heard, read_facts
from policies.state import Fleet, health_changed, take_stock
from policies.teach import teach


def joined(fleet: Fleet, event: Joined) -> None:
    """A backend is in the fleet; known ones are described anew and keep what they learnt."""
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
            old.drop(at, live.charge, live.output_tokens, waiting)
            new.take(at, live.charge, live.output_tokens)
            if not waiting:
                new.prefill_done(live.charge, live.output_tokens)
            live.backend, live.trial = new, False
            live.crowd_at, live.prefilled_at = new.crowd_integral, new.prefilled
    new.peers, old.peers = old.peers, {}
    new.sum_peers()


def left(fleet: Fleet, event: Left) -> None:
    """A backend is out of the fleet."""
    if fleet.backends.pop(event.backend, None) is not None:
        fleet.prefixes.forget(event.backend)
        health_changed(fleet)
        take_stock(fleet)


def probed(fleet: Fleet, event: Probed) -> None:
    """A health check ended."""
    backend = fleet.backends.get(event.backend)
    if backend is None:
        return
    if not event.ok:
        backend.breaker.failure(event.at)
    elif backend.breaker.state == OPEN and not backend.breaker.hung:
        backend.breaker.reopens_at = event.at
        backend.breaker.wake(event.at)
    health_changed(fleet)


def pulse(fleet: Fleet, event: Pulse) -> None:
    """Its last bytes came at some time, which tells whether it hangs."""
    backend = fleet.backends.get(event.backend)
    if backend is not None and backend.hear_pulse(event, fleet.settings):
        if not backend.stalled and backend.breaker.hung:
            backend.breaker.success()
        health_changed(fleet)


def scraped(fleet: Fleet, event: Scraped) -> None:
    """Its metrics page was read."""
    backend = fleet.backends.get(event.backend)
    if backend is not None:
        backend.hear_scrape(event)
        backend.settle(fleet.settings.cold_requests)


def peer_load(fleet: Fleet, event: PeerLoad) -> None:
    """Another replica told its counts."""
    backend = fleet.backends.get(event.backend)
    if backend is not None:
        backend.hear_peer(event)


def peer_learnt(fleet: Fleet, event: PeerLearnt) -> None:
    """Another replica told a lesson; folded in once."""
    heard = fleet.heard.setdefault(event.replica, Heard())
    learnt = read_facts(event.facts) if heard.is_news(event.sequence) else None
    if learnt is not None:
        backend = fleet.backends.get(learnt.backend)
        if backend is not None and not cancelled(learnt):
            backend.finished += 1
            fleet.applications.count(learnt.app, learnt.lane)
        teach(fleet, learnt, event.at)
        if learnt.prefix and learnt.backend in fleet.backends:
            fleet.prefixes.remember(((learnt.prefix, learnt.prefix_bytes),), learnt.backend, event.at)


def peer_lost(fleet: Fleet, event: PeerLost) -> None:
    """Another replica is gone, and its load with it."""
    fleet.heard.pop(event.replica, None)
    for backend in fleet.backends.values():
        backend.lose_peer(event.replica, event.at)
