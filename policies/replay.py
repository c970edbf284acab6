"""The same events again: the same decisions, or what would have changed.

A journal holds the events in the order they were advanced. Replaying feeds each to a fresh fleet and asks for a decision
where one was asked: at every ``Arrived`` (a re-queued request arrives again, with ``excluded`` filled). Under the same
settings the decisions are equal to the last bit. Under other settings the *first-order* answer is given: what other
settings would have decided, given what then really happened (the answers of the backends that were really chosen).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from policies.decide import decide
from policies.decision import Decision, Verdict
from policies.events import SYNTHETIC, Arrived, Event
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings


def replay(
    events: Iterable[Event], settings: PolicySettings, fleet: Fleet | None = None
) -> Iterator[tuple[Arrived, Verdict]]:
    """Each request with its decision, in order. Lazy; memory is that of one fleet.

    ``fleet``: one to start from (restored from a keepsake) or to look into afterwards; fresh when None.
    """
    fleet = Fleet(settings) if fleet is None else fleet
    for event in events:
        advance(fleet, event)
        if type(event) is Arrived and event.surface != SYNTHETIC:
            yield event, decide(fleet, event)


class Change(NamedTuple):
    """A request decided differently."""

    arrived: Arrived
    before: Verdict
    after: Verdict


class Comparison(NamedTuple):
    """Two sets of settings over one journal."""

    requests: int
    changed: tuple[Change, ...]
    """In order; at most ``keep`` of them."""
    changed_requests: int
    lanes: tuple[tuple[str, int], ...]
    """("speculative→plain", count), sorted by name."""


def compare(events: Iterable[Event], before: PolicySettings, after: PolicySettings, keep: int = 1_000) -> Comparison:
    """What would have changed. One pass: both fleets see each event side by side."""
    old, new = Fleet(before), Fleet(after)
    requests = differing = 0
    changed: list[Change] = []
    lanes: dict[str, int] = {}
    for event in events:
        advance(old, event)
        advance(new, event)
        if type(event) is not Arrived or event.surface == SYNTHETIC:
            continue
        requests += 1
        was, would = decide(old, event), decide(new, event)
        if _goes_to(was) != _goes_to(would):
            differing += 1
            move = f"{_lane(was)}→{_lane(would)}"
            lanes[move] = lanes.get(move, 0) + 1
            if len(changed) < keep:
                changed.append(Change(event, was, would))
    return Comparison(requests, tuple(changed), differing, tuple(sorted(lanes.items())))


def _goes_to(verdict: Verdict) -> str:
    return verdict.backend if isinstance(verdict, Decision) else type(verdict).__name__


def _lane(verdict: Verdict) -> str:
    return verdict.lane if isinstance(verdict, Decision) else type(verdict).__name__
