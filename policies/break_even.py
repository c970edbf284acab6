"""Policy ``break-even``, the default: send each request where it costs least, the delay of the others included.

Intent: a request gains from speculation in proportion to its output and pays in proportion to its input and the crowd it
joins. For backend j with n in flight, m of them in the steps ahead, p prompt tokens waiting, learnt parameters c, F, b:

    τ = (F + b·(m+1)) / AL                                          seconds per output token of this class there
    J = c·(½·p + in_j) + F + out·τ + w·(n'·c·in_j + m·V)            V = out/AL · (b + c·(1+k)) / 2,  k = 0 on plain

with n' = n less 0.4 of those waiting for their first token (``policies.backend``),

and the smallest J wins. Above the engine's capacity ``out·τ·(n − capacity)/capacity`` is added for the queue.
V is what the decode costs each of the others per step: b says so directly but is learnt from little, c·(1+k) is the
compute of the tokens verified; their mean did better than either (modelled mean regret 1.4, 1.7 and 1.8 %).
J is linear in ``out``, so ``J_spec = J_plain`` has one solution: the break-even output length, shown as a ratio.
The term with w is what the request costs the n others: without it (w = 0) every request is selfish, and modelled mean
latency is 21 % above the best policy's; with w = 1 it is 1.3 %.
Reads: predictions (out, in_j), learnt speeds and tokens per step, loads, verdict. Settings: ``price_weight``,
``cold_requests``, ``explore_share``, ``explore_reach``, ``stickiness``, ``verdict.aversion``.
When it is wrong: predictions off by far more than two (a new application), step times that do not follow F + b·n.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from policies.backend import Backend
from policies.choice import Choice
from policies.decision import NEVER
from policies.least_load import by_load
from policies.live import Live
from policies.make import make

if TYPE_CHECKING:
    from policies.fleet import Fleet

PROBE_REACH: Final = 4.0
"""A probe may cost at most this many times the best; dearer ones wait for a quieter moment."""
SHOWN: Final = 8
"""Costs kept in a decision; nobody reads more, and every entry costs a tenth of a microsecond."""
_cost: Final = itemgetter(0)
Scored = list[tuple[float, Backend]]


def break_even(fleet: "Fleet", live: Live, candidates: Sequence[Backend]) -> Choice:
    """Rank by J; explore, probe and stick to a session's backend where the settings say so."""
    if fleet.cold and not all(backend.warm for backend in candidates):
        return Choice(by_load(fleet, candidates), "cold-start")
    scored = score(fleet, live, candidates)
    scored.sort(key=_cost)
    border = break_even_tokens(fleet, live, scored)
    reason = _rearrange(fleet, live, scored)
    return make(
        Choice,
        [backend for _, backend in scored[:SHOWN]],
        reason,
        border,
        tuple([(backend.name, cost) for cost, backend in scored[:SHOWN]]),
    )


def score(fleet: "Fleet", live: Live, candidates: Sequence[Backend]) -> Scored:
    """(J, backend) of each candidate, in their order. The hot loop: plain arithmetic on slots; ``per_step`` of a plain
    backend is empty and its ``base_per_step`` 1."""
    out, need, name, cached = live.output_tokens, live.input_tokens, live.gain_class, live.cached
    if cached:
        scored = [
            (
                b.upfront
                + b.per_input * (need - cached.get(b.name, 0.0))
                + out * b.per_output / b.per_step.get(name, b.base_per_step),
                b,
            )
            for b in candidates
        ]
    else:
        scored = [
            (b.upfront + b.per_input * need + out * b.per_output / b.per_step.get(name, b.base_per_step), b)
            for b in candidates
        ]
    if live.averse:
        aversion = fleet.settings.verdict.aversion
        scored = [(cost * aversion if b.speculative else cost, b) for cost, b in scored]
    return scored


def line(fleet: "Fleet", live: Live, backend: Backend) -> tuple[float, float]:
    """J as a line over the output length: (seconds at no output, seconds per output token)."""
    fixed = backend.upfront + backend.per_input * live.uncached(backend.name)
    if not backend.speculative:
        return fixed, backend.per_output
    per_token = backend.per_output / backend.per_step.get(live.gain_class, backend.base_per_step)
    aversion = fleet.settings.verdict.aversion if live.averse else 1.0
    return aversion * fixed, aversion * per_token


def break_even_tokens(fleet: "Fleet", live: Live, scored: Scored) -> float | None:
    """Output tokens above which the cheapest speculative backend beats the cheapest plain one; None with one lane only.

    0 when speculation wins at any length, ``NEVER`` when at none. Should speculation be the better one *below* a length
    (it saves a full prefill but decodes slower), there is no such border either: ``NEVER`` or 0, as this request stands.
    """
    fast = plain = None
    for _, backend in scored:
        if backend.speculative:
            fast = fast or backend
        else:
            plain = plain or backend
        if fast and plain:
            break
    if fast is None or plain is None:
        return None
    fixed_fast, slope_fast = line(fleet, live, fast)
    fixed_plain, slope_plain = line(fleet, live, plain)
    if slope_fast >= slope_plain:
        return NEVER if scored[0][1] is not fast else 0.0
    return max(0.0, (fixed_fast - fixed_plain) / (slope_plain - slope_fast))


def _rearrange(fleet: "Fleet", live: Live, scored: Scored) -> str:
    """Move a near-best backend to the front where there is a reason to; return the reason."""
    best = scored[0][0]
    if live.probe_lane is not None:
        place = _probe_place(live.probe_lane, scored)
        if place:
            scored.insert(0, scored.pop(place))
            return "probe"
        if place == 0:
            return "break-even"
    settings = fleet.settings
    if live.arrived.draw < settings.explore_share:
        near = [
            place for place, (cost, backend) in enumerate(scored) if _near(cost, backend, best, settings.explore_reach)
        ]
        place = near[int(live.arrived.choice * len(near)) % len(near)] if near else 0
        if place:
            scored.insert(0, scored.pop(place))
            return "explore"
    elif live.home is not None and scored[0][1].name != live.home:
        for place, (cost, backend) in enumerate(scored):
            if backend.name == live.home and cost <= best * (1.0 + settings.stickiness):
                scored.insert(0, scored.pop(place))
                return "sticky"
    return "does-not-pay" if live.averse and not scored[0][1].speculative else "break-even"


def _near(cost: float, backend: Backend, best: float, reach: float) -> bool:
    return cost <= reach * best and not queues(backend)


def queues(backend: Backend) -> bool:
    """Whether one more request would wait for its turn."""
    return backend.waiting > 0 or backend.in_flight >= backend.capacity > 0


def _probe_place(lane: str, scored: Scored) -> int | None:
    for place, (cost, backend) in enumerate(scored):
        if backend.lane == lane:
            return place if cost <= PROBE_REACH * scored[0][0] and not queues(backend) else None
    return None
