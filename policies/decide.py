"""Filter → score → pick: the decision for one request. Reads the fleet, changes nothing.

Intent: hard facts first (who serves the model, is healthy, has room, does not refuse a feature), the policy last.
A filter gives way when it would leave nobody: a slow answer beats none, and a backend's own error text beats ours.
Reads: everything in ``Fleet``. Settings: ``name``, ``lane_rules``, ``admission``.
When it is wrong: only as wrong as what it reads; ``explain`` says which figure that was.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from policies.admission import retry_after, with_room
from policies.backend import Backend
from policies.baselines import all_plain, all_speculative, round_robin
from policies.break_even import break_even
from policies.choice import Choice, Policy
from policies.decision import NEVER, Decision, NoBackend, Overloaded, Verdict
from policies.events import Arrived
from policies.fixed_ratio import fixed_ratio
from policies.fleet import Fleet, assess
from policies.least_load import least_load
from policies.live import Live
from policies.make import make
from policies.workload import workload

POLICIES: Final[Mapping[str, Policy]] = {
    "break-even": break_even,
    "fixed-ratio": fixed_ratio,
    "least-load": least_load,
    "all-plain": all_plain,
    "all-speculative": all_speculative,
    "round-robin": round_robin,
}
"""Every policy there is; a new one is a function and a row."""

MODELS: Final = 1_000
"""Models whose candidates are cached (clients may ask for any name)."""


def decide(fleet: Fleet, arrived: Arrived) -> Verdict:
    """Where this request goes. ``arrived`` need not have been advanced: an unsent body can be judged too."""
    live = fleet.live.get(arrived.id)
    if live is None:
        live = assess(fleet, arrived)
    candidates = fleet.ready.get(arrived.model)
    if candidates is None:
        candidates = _remember(fleet, arrived.model)
    if len(candidates) == 1 and not arrived.excluded and fleet.settings.admission.max_in_flight is None:
        return _decision(fleet, live, Choice(candidates, "only-backend"))
    return _choose(fleet, live, arrived, candidates)


def _choose(fleet: Fleet, live: Live, arrived: Arrived, candidates: Sequence[Backend]) -> Verdict:
    if arrived.excluded:
        candidates = _not_excluded(fleet, arrived)
    if not candidates:
        known = any(backend.serves(arrived.model) for backend in fleet.backends.values())
        return NoBackend(arrived.id, arrived.model, "none-healthy" if known else "unknown-model")
    fitting, reason = _suited(fleet, arrived, candidates)
    if arrived.after:
        reason = f"after:{arrived.after}"
    if not fitting:
        return NoBackend(arrived.id, arrived.model, "too-long")
    roomy = with_room(fitting, fleet.settings.admission)
    if not roomy:
        after = retry_after(fitting, fleet.settings.admission)
        return Overloaded(arrived.id, arrived.model, after)
    if len(roomy) == 1:
        return _decision(fleet, live, Choice(roomy, reason or "only-backend"))
    choice = POLICIES[fleet.settings.name](fleet, live, roomy)
    return _decision(fleet, live, choice._replace(reason=reason) if reason else choice)


def _remember(fleet: Fleet, model: str) -> tuple[Backend, ...]:
    found = fleet.ready[model] = candidates_for(fleet, model)
    if len(fleet.ready) > MODELS:
        fleet.ready.clear()
    return found


def candidates_for(fleet: Fleet, model: str, excluded: tuple[str, ...] = ()) -> tuple[Backend, ...]:
    """Backends that serve the model: the healthy ones; if none, those busy or stalled; if none, any.

    The last step is deliberate: when every breaker is open, one try more does no harm and may find the repair.
    """
    serving = [
        backend
        for backend in fleet.backends.values()
        if not backend.draining and backend.name not in excluded and backend.serves(model)
    ]
    up = [backend for backend in serving if backend.breaker.admits()]
    well = tuple(backend for backend in up if not backend.stalled and backend.busy_until <= fleet.now)
    return well or tuple(up) or tuple(serving)


def _not_excluded(fleet: Fleet, arrived: Arrived) -> Sequence[Backend]:
    return candidates_for(fleet, arrived.model, arrived.excluded)


def _suited(fleet: Fleet, arrived: Arrived, candidates: Sequence[Backend]) -> tuple[Sequence[Backend], str]:
    """Candidates after hard suitability and lane rules, and the rule that decided, if one did."""
    fitting: Sequence[Backend] = candidates
    if arrived.prompt_tokens is not None:
        fitting = [b for b in candidates if not b.max_context_tokens or arrived.prompt_tokens <= b.max_context_tokens]
    if arrived.forced_lane is not None:
        forced = [backend for backend in fitting if backend.lane == arrived.forced_lane]
        if forced:
            return forced, "forced"
    rules, touchy = fleet.settings.lane_rules, fleet.touchy
    for feature in arrived.features:
        if feature in rules or feature in touchy:
            return _by_features(rules, arrived.features, fitting)
    return fitting, ""


def _by_features(
    rules: Mapping[str, str], features: tuple[str, ...], candidates: Sequence[Backend]
) -> tuple[Sequence[Backend], str]:
    for feature in features:
        lane = rules.get(feature)
        kept = [backend for backend in candidates if lane in (None, backend.lane) and feature not in backend.refuses]
        if kept and len(kept) < len(candidates):
            return _only(kept, features), f"lane-rule:{feature}"
    return candidates, ""


def _only(candidates: list[Backend], features: tuple[str, ...]) -> Sequence[Backend]:
    able = [backend for backend in candidates if backend.refuses.isdisjoint(features)]
    return able or candidates


def _decision(fleet: Fleet, live: Live, choice: Choice) -> Decision:
    ranked = choice.ranked
    chosen = ranked[0]
    uncached = live.uncached(chosen.name)
    ratio = live.output_tokens / uncached
    border = choice.break_even_tokens
    break_even_ratio = border if border is None or border >= NEVER else border / uncached
    threshold = fleet.settings.fixed_ratio.threshold if break_even_ratio is None else break_even_ratio
    return make(
        Decision,
        live.arrived.id,
        chosen.name,
        chosen.lane,
        workload(ratio, threshold),
        choice.reason,
        fleet.settings.name,
        tuple([backend.name for backend in ranked[1:]]),
        live.input_tokens,
        uncached,
        live.output_tokens,
        ratio,
        break_even_ratio,
        choice.costs,
        live.output_source,
    )
