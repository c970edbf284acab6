"""How often a verdict is wrong, with heavy-tailed latencies: the promise of the documentation, kept here."""

import math
import random
from collections import Counter

from proxy.proof.compare import DOES_NOT_PAY, NOT_ENOUGH, PAYS, judge_family
from proxy.proof.intervals import Pair

KINDS, PER_KIND = 8, 20
RUNS = 200
RESAMPLES = 150


def latency(rng: random.Random, size: float) -> float:
    """Sizes spread over decades; every request has its own noise, and one in thirty a hiccup without a limit."""
    seconds = size * math.exp(rng.gauss(0, 0.15))
    return seconds * (1 + rng.paretovariate(1.5)) if rng.random() < 0.03 else seconds


def measured(rng: random.Random, gain: float) -> list[list[Pair]]:
    """All kinds of a run on 160 prompts whose first arm takes ``gain`` times as long."""
    kinds = []
    for kind in range(KINDS):
        sizes = [math.exp(rng.gauss(0, 1)) for _ in range(PER_KIND)]
        blocks = range(kind * PER_KIND, (kind + 1) * PER_KIND)
        kinds.append(
            [Pair(latency(rng, s) * gain, latency(rng, s), block) for s, block in zip(sizes, blocks, strict=True)]
        )
    return kinds


def overall(kinds: list[list[Pair]]) -> str:
    return judge_family([[pair for kind in kinds for pair in kind]], seed=1, resamples=RESAMPLES)[0].verdict


def test_identical_arms_are_rarely_told_apart() -> None:
    """200 runs; any verdict, overall or for any of eight kinds, but "not enough data" is a false one."""
    rng = random.Random(2026)
    false = 0
    for _ in range(RUNS):
        kinds = measured(rng, 1.0)
        verdicts = [overall(kinds), *(judged.verdict for judged in judge_family(kinds, seed=1, resamples=RESAMPLES))]
        false += any(verdict != NOT_ENOUGH for verdict in verdicts)
    assert false <= 0.05 * RUNS


def test_arms_ten_percent_apart_are_told_apart_with_160_prompts() -> None:
    rng = random.Random(7)
    verdicts = Counter(overall(measured(rng, 1.1)) for _ in range(60))
    verdicts.update(overall(measured(rng, 1 / 1.1)) for _ in range(60))
    assert verdicts[PAYS] >= 54
    assert verdicts[DOES_NOT_PAY] >= 54


def test_a_rare_large_gain_counts() -> None:
    """An n-gram drafter that makes every fifth prompt three times as fast, and does nothing for the others."""
    rng = random.Random(9)
    verdicts: Counter[str] = Counter()
    for _ in range(20):
        pairs = [Pair(latency(rng, 1.0) * (3 if n % 5 == 0 else 1), latency(rng, 1.0), n) for n in range(160)]
        verdicts[judge_family([pairs], seed=1, resamples=RESAMPLES)[0].verdict] += 1
    assert verdicts[PAYS] >= 18


def test_seven_prompts_are_never_enough() -> None:
    pairs = [Pair(10.0, 1.0, block) for block in range(7)]
    assert judge_family([pairs], seed=1)[0].verdict == NOT_ENOUGH
