"""Which draft depth is worth trying: predictions from the depths that run. Pure functions.

With p_i the share of drafts whose first i tokens were accepted, a step with a draft of k tokens yields
AL(k) = 1 + Σ_{i≤k} p_i tokens and costs s·(1 + c·k), s being a plain step and c the cost of one more draft
token in units of it (drafting and verifying). Methods that draft only on a match cover a share u of the
output; the rest comes from plain steps. So the seconds per output token are

    t(k) = s·(1 − u) + u·s·(1 + c·k) ÷ AL(k)

which is the textbook formula for u = 1 (a draft model, EAGLE, MTP) and t(0) = s for a plain engine.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

DEFAULT_COST = 0.05
"""Assumed c until two depths were measured: a small draft model or head; n-gram is cheaper, a big draft dearer."""
WORTH = 0.05
"""A depth is worth running while its predicted time is within this of the best measured one."""


class Seen(NamedTuple):
    """What was measured at one depth; 0 is a plain engine."""

    depth: int
    seconds_per_token: float
    per_position: tuple[float, ...] = ()
    covered: float = 1.0
    """Share u of the output that came from steps with a draft."""


class Prediction(NamedTuple):
    """What a depth should give."""

    depth: int
    acceptance_length: float
    seconds_per_token: float
    extrapolated: bool
    """Positions beyond the measured ones were needed."""
    cost: float
    """The c it rests on."""


def extended(per_position: Sequence[float], depth: int) -> list[float]:
    """p_1 … p_depth. Beyond the measured positions each is the one before times the last conditional rate.

    The conditional rate p_i ÷ p_{i−1} falls slowly with the position; the mean of the last two that were
    measured is carried on, which overstates great depths a little.
    """
    known = [min(1.0, max(0.0, p)) for p in per_position]
    if len(known) >= depth or not known:
        return known[:depth]
    chain = [1.0, *known]
    rates = [later / earlier for earlier, later in zip(chain, known, strict=False) if earlier > 0]
    rate = min(1.0, math.prod(rates[-2:]) ** (1 / len(rates[-2:]))) if rates else 0.0
    while len(known) < depth:
        known.append(known[-1] * rate)
    return known


def acceptance_length(per_position: Sequence[float], depth: int) -> float:
    """AL(depth), bonus token included."""
    return 1 + sum(extended(per_position, depth))


def predict(seen: Sequence[Seen], depths: Sequence[int], cost: float = DEFAULT_COST) -> list[Prediction]:
    """Seconds per token at each depth, from the acceptance of the deepest one seen.

    s and c are fitted to all depths seen by least squares; with a single one, ``cost`` is believed.
    Raises ValueError when no depth with acceptance per position was seen.
    """
    deepest = max((s for s in seen if s.per_position), key=lambda s: s.depth, default=None)
    if deepest is None:
        raise ValueError("no acceptance per position was measured")
    step, per_draft = _fitted(seen, deepest, cost)
    found = []
    for depth in depths:
        plain, drafted = _shares(deepest, depth)
        length = acceptance_length(deepest.per_position, depth)
        beyond = depth > len(deepest.per_position)
        found.append(Prediction(depth, length, step * plain + per_draft * drafted, beyond, per_draft / step))
    return found


def _shares(reference: Seen, depth: int) -> tuple[float, float]:
    """t(k) is linear in s and s·c; these are their factors."""
    if depth == 0:
        return 1.0, 0.0
    length = acceptance_length(reference.per_position, depth)
    return 1 - reference.covered + reference.covered / length, reference.covered * depth / length


def _fitted(seen: Sequence[Seen], deepest: Seen, cost: float) -> tuple[float, float]:
    """(s, s·c). A depth's own acceptance explains its time; noise must not turn the cost negative."""
    rows = [(*_shares(one if one.per_position else deepest, one.depth), one.seconds_per_token) for one in seen]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    at, bt = (sum(r[i] * r[2] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    if len(rows) < 2 or determinant <= 1e-9 * aa * bb:
        step = sum(r[2] for r in rows) / sum(r[0] + cost * r[1] for r in rows)
        return step, step * cost
    step, per_draft = (at * bb - bt * ab) / determinant, (aa * bt - ab * at) / determinant
    if per_draft < 0:
        return at / aa, 0.0
    return (step, per_draft) if step > 0 else (at / aa, 0.0)


def next_depth(predictions: Sequence[Prediction], measured: Mapping[int, float], worth: float = WORTH) -> int | None:
    """The unmeasured depth to run next; None when no other one promises anything.

    ``measured`` maps depths to seconds per token. The best prediction goes first, as long as it is below the
    best measured time plus ``worth``.
    """
    waiting = [p for p in predictions if p.depth not in measured]
    if not waiting:
        return None
    first = min(waiting, key=lambda p: p.seconds_per_token)
    best = min(measured.values(), default=math.inf)
    return first.depth if first.seconds_per_token <= best * (1 + worth) else None


def worth_running(predictions: Sequence[Prediction], worth: float) -> list[int]:
    """Depths whose prediction is within ``worth`` of the best prediction."""
    best = min((p.seconds_per_token for p in predictions), default=math.inf)
    return [p.depth for p in predictions if p.seconds_per_token <= best * (1 + worth)]
