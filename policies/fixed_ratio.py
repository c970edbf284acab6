"""Policy ``fixed-ratio``: predicted output ÷ uncached input against a constant.

Intent: simple to explain, and people ask for it.
Reads: predictions, requests in flight. Settings: ``fixed_ratio``.
When it is wrong: the right constant ranges from 0.01 to 2 between services and moves with load; modelled regret +11 to
+24 % with the spill rule, +175 to +825 % without. Prefer ``break-even``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policies.backend import Backend
from policies.choice import Choice
from policies.least_load import by_load
from policies.live import Live

if TYPE_CHECKING:
    from policies.fleet import Fleet


def fixed_ratio(fleet: "Fleet", live: Live, candidates: Sequence[Backend]) -> Choice:
    """Decode-heavy requests to the speculative lane, others to the plain one, unless that lane is too crowded."""
    rules = fleet.settings.fixed_ratio
    ordered = by_load(fleet, candidates)
    least_input = min(live.uncached(backend.name) for backend in candidates)
    border = rules.threshold * least_input
    speculative = live.output_tokens > border
    own = [backend for backend in ordered if backend.speculative is speculative]
    other = [backend for backend in ordered if backend.speculative is not speculative]
    if own and other and own[0].in_flight > rules.spill * other[0].in_flight + rules.spill_slack:
        return Choice(other + own, "spill", border)
    return Choice(own + other, "fixed-ratio" if own else "other-lane", border)
