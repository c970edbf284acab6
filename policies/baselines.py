"""The baselines ``all-plain``, ``all-speculative`` and ``round-robin``.

Intent: what to compare with. ``all-plain`` and ``all-speculative`` answer "what would one lane alone do?" and are also
the way to switch the product's judgement off without taking it out of the path.
Reads: lanes, requests in flight, the count of dispatched requests. Settings: none.
When they are wrong: always somewhere; that is their use. A lane that has no healthy backend yields to the other.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policies.backend import Backend
from policies.choice import Choice
from policies.least_load import by_load
from policies.live import Live

if TYPE_CHECKING:
    from policies.fleet import Fleet


def all_plain(fleet: "Fleet", live: Live, candidates: Sequence[Backend]) -> Choice:
    """The plain lane, fewest in flight first; then the other one."""
    return Choice(_lane_first(fleet, candidates, speculative=False), "all-plain")


def all_speculative(fleet: "Fleet", live: Live, candidates: Sequence[Backend]) -> Choice:
    """The speculative lane, fewest in flight first; then the other one."""
    return Choice(_lane_first(fleet, candidates, speculative=True), "all-speculative")


def round_robin(fleet: "Fleet", live: Live, candidates: Sequence[Backend]) -> Choice:
    """Everybody in turn."""
    start = fleet.turn % len(candidates)
    return Choice((*candidates[start:], *candidates[:start]), "round-robin")


def _lane_first(fleet: "Fleet", candidates: Sequence[Backend], speculative: bool) -> list[Backend]:
    ordered = by_load(fleet, candidates)
    ordered.sort(key=lambda backend: backend.speculative is not speculative)
    return ordered
