"""How sure a comparison is: paired resampling, sign-flip tests, slopes. Pure functions, standard library only.

A *block* is what was measured together: one prompt when requests ran one at a time, the prompts of one
burst when several ran at once. Requests of one burst share their luck (a page fault, a busy neighbour),
so blocks, not requests, are resampled and sign-flipped; resampling requests would give intervals that
are far too narrow (routing notes: design effects of 2–7, hundreds with runaway outputs).
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, product
from statistics import NormalDist
from typing import NamedTuple

LEVEL = 0.95
RESAMPLES = 2000
TAMED = 0.1
"""Share of pairs, those with the largest ratios either way, that ``tamed`` holds back."""
EXACT_BLOCKS = 12
"""Up to this many blocks all 2^n sign patterns are tried instead of a random sample of them."""

_ODD = bytes(byte & 1 for byte in range(256))


class Pair(NamedTuple):
    """The same prompt on two arms (seconds, tokens per second …), or a numerator and its denominator."""

    first: float
    second: float
    block: int = 0


class Interval(NamedTuple):
    """An estimate, its bounds, and what they were made from."""

    value: float
    low: float
    high: float
    pairs: int
    level: float = LEVEL


class Slope(NamedTuple):
    """Theil–Sen slope per step of the run order with its bounds."""

    value: float
    low: float
    high: float
    points: int

    def growth(self) -> float:
        """End ÷ start over the run when the values were logarithms."""
        return math.exp(self.value * max(self.points - 1, 0))


class Block(NamedTuple):
    """The pairs of one block, with the sums every resample needs."""

    firsts: tuple[float, ...]
    seconds: tuple[float, ...]
    log_ratio: float
    """Σ ln(first ÷ second); NaN when one of the values is not positive."""
    first_total: float
    second_total: float
    size: int


Statistic = Callable[[Sequence[Block]], float]


def blocks_of(pairs: Iterable[Pair]) -> list[Block]:
    """Group pairs by block, in order of the block numbers."""
    grouped: dict[int, list[Pair]] = {}
    for pair in pairs:
        grouped.setdefault(pair.block, []).append(pair)
    return [
        Block(
            tuple(p.first for p in group),
            tuple(p.second for p in group),
            math.fsum(_log_ratio(p) for p in group),
            math.fsum(p.first for p in group),
            math.fsum(p.second for p in group),
            len(group),
        )
        for _, group in sorted(grouped.items())
    ]


def _log_ratio(pair: Pair) -> float:
    """A difference of logs, so that swapped arms turn the sign and nothing else, to the last bit."""
    return math.log(pair.first) - math.log(pair.second) if pair.first > 0 and pair.second > 0 else math.nan


def quantile(values: Iterable[float], q: float) -> float:
    """Linear interpolation between order statistics (type 7). Raises ValueError when there are no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return _between(ordered, q)


def _between(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def typical_ratio(blocks: Sequence[Block]) -> float:
    """Geometric mean of first ÷ second: what happens to the typical request, whatever its size."""
    return math.exp(sum(b.log_ratio for b in blocks) / sum(b.size for b in blocks))


def tamed(pairs: Sequence[Pair], share: float = TAMED) -> list[Pair]:
    """Pairs whose log ratios are held within the 1 − ``share`` quantile of their absolute values.

    A hiccup that hits one prompt on one arm (a neighbour's job, a page-out) says nothing of the arms, and a few
    of them drown a difference of 10 %. Gains that more than a tenth of the prompts have still count in full. The
    limit looks at sizes only, never at signs, so that the sign-flip test stays exact.
    """
    logs = [(_log_ratio(pair), pair) for pair in pairs if pair.first > 0 and pair.second > 0]
    if not logs:
        return []
    most = quantile((abs(log) for log, _ in logs), 1 - share)
    return [pair._replace(first=pair.second * math.exp(min(most, max(-most, log)))) for log, pair in logs]


def total_ratio(blocks: Sequence[Block]) -> float:
    """Σ first ÷ Σ second: what happens to the sum of all waiting; long requests weigh more."""
    return sum(b.first_total for b in blocks) / sum(b.second_total for b in blocks)


def quantile_ratio(q: float) -> Statistic:
    """Ratio of the q-quantiles of both sides."""

    def ratio(blocks: Sequence[Block]) -> float:
        firsts = [value for b in blocks for value in b.firsts]
        seconds = [value for b in blocks for value in b.seconds]
        return quantile(firsts, q) / quantile(seconds, q)

    return ratio


def bootstrap(
    pairs: Sequence[Pair], statistic: Statistic, *, seed: int = 1, resamples: int = RESAMPLES, level: float = LEVEL
) -> Interval | None:
    """Expanded percentile bootstrap over blocks; None with fewer than five blocks.

    The plain percentile interval is too narrow in small samples by a factor √((n−1)/n) and by using normal
    instead of Student tails; its tail probability is therefore moved to Φ(−√(n/(n−1))·t), after Hesterberg,
    "What Teachers Should Know About the Bootstrap", 2015.
    """
    blocks = blocks_of(pairs)
    if len(blocks) < 5:
        return None
    rng = random.Random(seed)
    drawn = sorted(statistic(rng.choices(blocks, k=len(blocks))) for _ in range(resamples))
    tail = _expanded_tail((1 - level) / 2, len(blocks))
    low, high = (_between(drawn, share) for share in (tail, 1 - tail))
    return Interval(statistic(blocks), low, high, len(pairs), level)


def _expanded_tail(tail: float, blocks: int) -> float:
    return NormalDist().cdf(math.sqrt(blocks / (blocks - 1)) * student_quantile(tail, blocks - 1))


def student_quantile(share: float, freedom: int) -> float:
    """Quantile of Student's t by the Cornish–Fisher expansion; within 1 % from 4 degrees of freedom on."""
    z: float = NormalDist().inv_cdf(share)
    q = z * z
    first = z * (q + 1) / 4
    second = z * ((5 * q + 16) * q + 3) / 96
    third = z * (((3 * q + 19) * q + 17) * q - 15) / 384
    return z + (first + (second + third / freedom) / freedom) / freedom


def sign_flip_p(pairs: Sequence[Pair], *, seed: int = 1, flips: int = 4000) -> float:
    """Two-sided p-value of "the arms are alike": how often random swaps of the arms differ at least as much.

    Valid for any distribution of latencies, heavy tails included, because under "alike" each block's
    log ratio is as likely to carry the other sign. With n blocks it cannot fall below 2/2^n, or 1/flips; there,
    when no swap at all differs as much, Student's p-value says how far beyond that floor the blocks lie.
    """
    sums = [block.log_ratio for block in blocks_of(pairs)]
    if not sums:
        return 1.0
    total = math.fsum(sums)
    # Ties count, whichever way their sums were rounded: measured against the summands, which may cancel out.
    seen = abs(total) - 1e-12 * math.fsum(map(abs, sums))
    # Flipping a subset changes the total by twice the subset's sum.
    if len(sums) <= EXACT_BLOCKS:
        subsets = list(product((0, 1), repeat=len(sums)))
        extreme = sum(abs(total - 2 * sum(compress(sums, subset))) >= seen for subset in subsets)
        p, floor = extreme / len(subsets), extreme <= 2
    else:
        rng = random.Random(seed)
        draws = (rng.randbytes(len(sums)).translate(_ODD) for _ in range(flips))
        extreme = sum(abs(total - 2 * sum(compress(sums, draw))) >= seen for draw in draws)
        p, floor = (1 + extreme) / (1 + flips), extreme == 0
    return min(p, student_p(sums)) if floor else p


def student_p(values: Sequence[float]) -> float:
    """Two-sided p-value of a mean of zero, by Wallace's normal approximation to Student's t."""
    n = len(values)
    mean = math.fsum(values) / n
    spread = math.fsum((value - mean) ** 2 for value in values)
    if n < 2 or mean == 0:
        return 1.0
    if spread == 0:
        return 0.0
    freedom = n - 1
    t_squared = mean * mean * n * freedom / spread
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t_squared / freedom))
    return 2 * NormalDist().cdf(-z)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: comparing each with α keeps the chance of *any* false alarm below α."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def theil_sen(values: Sequence[float], *, level: float = 0.99) -> Slope | None:
    """Median of all pairwise slopes over the index, with Sen's interval; None with fewer than 8 values.

    Sen (1968): the bounds are the order statistics of the slopes that lie z·√Var(S) around the middle,
    Var(S) = n(n−1)(2n+5)/18 being the variance of Kendall's score.
    """
    n = len(values)
    if n < 8:
        return None
    slopes = sorted((values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n))
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, math.floor((len(slopes) - reach) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))
    return Slope(quantile(slopes, 0.5), slopes[low], slopes[high], n)
