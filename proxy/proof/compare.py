"""Two arms compared: figures of each, ratios with their intervals, and a verdict per kind and load.

Every ratio is turned so that above 1 means "the second arm is better".
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.proof.arm import Sample
from proxy.proof.course import Course
from proxy.proof.figures import Figures, Pick, figures_of, latency, speed, tpot, ttft
from proxy.proof.intervals import (
    RESAMPLES,
    Interval,
    Pair,
    Statistic,
    bootstrap,
    holm,
    quantile_ratio,
    sign_flip_p,
    tamed,
    total_ratio,
    typical_ratio,
)

PAYS = "pays"
DOES_NOT_PAY = "does not pay"
NOT_ENOUGH = "not enough data"
ALL_KINDS = "all kinds"
ERROR_CHANCE = 0.025
"""Chance that a run on two arms that are alike ends in any verdict but "not enough data".

Half of what is promised (0.05), so that even unlucky series of runs keep the promise.
"""
FLIPS_PER_RESAMPLE = 5
"""A sign flip is cheap, and the smallest p-value of a family needs more of them than an interval needs resamples."""
FEWEST_BLOCKS = 8
FEWEST_FOR_P99 = 100


class Cell(NamedTuple):
    """One kind at one load."""

    load: str
    kind: str
    figures: dict[str, Figures]
    ratios: dict[str, Interval | None]
    """By name of RATIOS, and ``equal_length``, the one that verdicts rest on."""
    p: float
    """Sign-flip p-value of "the arms are alike"."""
    adjusted_p: float
    """After Holm over all cells of its family."""
    verdict: str
    sentence: str


class Matched(NamedTuple):
    """The same prompt under the same load on both arms."""

    first: Sample
    second: Sample


def match(samples: Iterable[Sample], first: str, second: str) -> list[Matched]:
    """Prompts that both arms answered to the end, in run order."""
    held: dict[tuple[str, str, str], Sample] = {(s.arm, s.place.load, s.prompt): s for s in samples if s.ok}
    return [
        Matched(sample, other)
        for (arm, load, prompt), sample in held.items()
        if arm == first and (other := held.get((second, load, prompt))) is not None
    ]


def seconds_at_equal_length(sample: Sample, tokens: float) -> float:
    """TTFT + (tokens − 1)·TPOT: what the answer would have taken had it been ``tokens`` long.

    Sampled answers differ in length from arm to arm; comparing their raw latencies compares luck.
    """
    if sample.tpot_seconds is None or sample.ttft_seconds is None:
        return sample.latency_seconds or math.nan
    return sample.ttft_seconds + (tokens - 1) * sample.tpot_seconds


def alike(matched: Matched) -> Pair:
    """Both arms' seconds at the mean of both lengths."""
    lengths = [s.completion_tokens for s in matched if s.completion_tokens is not None]
    tokens = max(1.0, sum(lengths) / len(lengths)) if lengths else 1.0
    first, second = (seconds_at_equal_length(sample, tokens) for sample in matched)
    return Pair(first, second, matched.first.place.block)


def pairs_of(matched: Sequence[Matched], pick: Pick) -> list[Pair]:
    """Values of both arms where both have one."""
    picked = [(pick(m.first), pick(m.second), m.first.place.block) for m in matched]
    return [Pair(a, b, block) for a, b, block in picked if a is not None and b is not None and a > 0 and b > 0]


RATIOS: dict[str, tuple[Pick, Statistic, int]] = {
    "latency_p50": (latency, quantile_ratio(0.5), 0),
    "latency_p99": (latency, quantile_ratio(0.99), FEWEST_FOR_P99),
    "ttft_p50": (ttft, quantile_ratio(0.5), 0),
    "ttft_p99": (ttft, quantile_ratio(0.99), FEWEST_FOR_P99),
    "tpot": (tpot, typical_ratio, 0),
    "tokens_per_second": (speed, typical_ratio, 0),
}
"""What is compared beside the time at equal length: the value, the statistic, the pairs it needs."""


def ratios_of(matched: Sequence[Matched], seed: int) -> dict[str, Interval | None]:
    """The ratios of RATIOS with intervals."""
    found: dict[str, Interval | None] = {}
    for name, (pick, statistic, fewest) in RATIOS.items():
        pairs = pairs_of(matched, pick)
        interval = bootstrap(pairs, statistic, seed=seed) if len(pairs) >= fewest else None
        found[name] = _turned(interval) if interval is not None and name == "tokens_per_second" else interval
    return found


def _turned(interval: Interval) -> Interval:
    return interval._replace(value=1 / interval.value, low=1 / interval.high, high=1 / interval.low)


class Judged(NamedTuple):
    """One cell of a family."""

    interval: Interval | None
    p: float
    adjusted_p: float
    verdict: str


def judge_family(cells: Sequence[Sequence[Pair]], seed: int, resamples: int = RESAMPLES) -> list[Judged]:
    """Judge cells together: Holm's adjustment keeps the chance of any false verdict among them."""
    held = [tamed(pairs) for pairs in cells]
    p_values = [
        sign_flip_p(pairs, seed=seed, flips=FLIPS_PER_RESAMPLE * resamples) if _blocks(pairs) >= FEWEST_BLOCKS else 1.0
        for pairs in held
    ]
    judged = []
    for pairs, p, adjusted in zip(held, p_values, holm(p_values), strict=True):
        interval = bootstrap(pairs, typical_ratio, seed=seed, resamples=resamples)
        judged.append(Judged(interval, p, adjusted, judge(interval, adjusted)))
    return judged


def _blocks(pairs: Sequence[Pair]) -> int:
    return len({pair.block for pair in pairs})


def judge(interval: Interval | None, adjusted_p: float) -> str:
    """Pays or does not pay only when interval *and* family-wise test say so."""
    if interval is None or adjusted_p > ERROR_CHANCE / 2:
        return NOT_ENOUGH
    if interval.low > 1:
        return PAYS
    return DOES_NOT_PAY if interval.high < 1 else NOT_ENOUGH


def compare(course: Course, first: str, second: str, seed: int = 1) -> list[Cell]:
    """A cell per load for all kinds together and for each kind.

    The chance of a false verdict is split in halves between the overall cells and the kinds; within each
    half Holm's adjustment keeps it, however many cells there are.
    """
    loads = list(dict.fromkeys(sample.place.load for sample in course.samples))
    kinds = sorted({sample.kind for sample in course.samples})
    overall = _family(course, first, second, [(load, None) for load in loads], seed)
    each = _family(course, first, second, [(load, kind) for load in loads for kind in kinds], seed)
    return overall + (each if len(kinds) > 1 else [])


def _family(course: Course, first: str, second: str, cells: Sequence[tuple[str, str | None]], seed: int) -> list[Cell]:
    sampled = [[s for s in course.samples if s.place.load == load and kind in (None, s.kind)] for load, kind in cells]
    matched = [match(samples, first, second) for samples in sampled]
    judged = judge_family([[alike(m) for m in pairs] for pairs in matched], seed)
    return [
        _cell(course, (first, second), load, kind, samples, pairs, verdict, seed)
        for (load, kind), samples, pairs, verdict in zip(cells, sampled, matched, judged, strict=True)
    ]


def _cell(
    course: Course,
    arms: tuple[str, str],
    load: str,
    kind: str | None,
    samples: Sequence[Sample],
    matched: Sequence[Matched],
    judged: Judged,
    seed: int,
) -> Cell:
    figures = {arm: figures_of(course, [s for s in samples if s.arm == arm], arm, kind, seed) for arm in arms}
    ratios = {"equal_length": judged.interval, **ratios_of(matched, seed)}
    sentence = in_words(judged.verdict, judged.interval, judged.p)
    return Cell(load, kind or ALL_KINDS, figures, ratios, judged.p, judged.adjusted_p, judged.verdict, sentence)


def in_words(verdict: str, interval: Interval | None, p: float) -> str:
    """The verdict as a sentence with its figures."""
    if interval is None:
        return "Too few prompts were answered by both arms."
    span = f"{change(interval.low)} to {change(interval.high)} over {interval.pairs} prompts"
    if verdict == PAYS:
        return f"Answers come {interval.value:.2f}× as fast ({span})."
    if verdict == DOES_NOT_PAY:
        return f"Answers come {interval.value:.2f}× as fast: slower ({span})."
    if interval.low > 1 or interval.high < 1:
        return f"{change(interval.value)} ({span}), but among so many comparisons one such is chance (p = {p:.3f})."
    return f"No difference shown: {change(interval.low)} to {change(interval.high)} are all possible ({interval.pairs} prompts)."


def change(ratio: float) -> str:
    """1.12 → +12 %."""
    percent = (ratio - 1) * 100
    return f"{percent:+.0f} %" if abs(percent) >= 9.5 else f"{percent:+.1f} %"


class Saving(NamedTuple):
    """What speculation would save at one load, per 1,000 requests of this mix at equal answer lengths."""

    load: str
    plain_seconds: float
    saved_if_all: float
    """Seconds of waiting less when every kind goes to the second arm; negative is a loss."""
    interval: Interval | None
    """Ratio of total waiting, plain ÷ speculative."""
    saved_if_routed: float
    """When only the kinds that pay go there. The kinds are chosen on the same data: a little optimistic."""
    routed_kinds: tuple[str, ...]


def savings(course: Course, cells: Sequence[Cell], first: str, second: str, seed: int = 1) -> list[Saving]:
    """One per load."""
    found = []
    for load in dict.fromkeys(cell.load for cell in cells):
        matched = [m for m in match(course.samples, first, second) if m.first.place.load == load]
        pairs = [alike(m) for m in matched]
        if not pairs:
            continue
        paying = tuple(c.kind for c in cells if c.load == load and c.kind != ALL_KINDS and c.verdict == PAYS)
        gains = [pair.first - pair.second for pair in pairs]
        routed = [gain for gain, m in zip(gains, matched, strict=True) if m.first.kind in paying]
        thousand = 1000 / len(pairs)
        interval = bootstrap(pairs, total_ratio, seed=seed)
        waited = sum(pair.first for pair in pairs) * thousand
        found.append(Saving(load, waited, sum(gains) * thousand, interval, sum(routed) * thousand, paying))
    return found
