"""Paired intervals, sign flips, slopes."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.proof.intervals import (
    Pair,
    bootstrap,
    holm,
    quantile,
    quantile_ratio,
    sign_flip_p,
    student_p,
    student_quantile,
    tamed,
    theil_sen,
    total_ratio,
    typical_ratio,
)

SECONDS = st.floats(0.001, 1000, allow_nan=False)
PAIRS = st.lists(st.tuples(SECONDS, SECONDS), min_size=5, max_size=30).map(
    lambda values: [Pair(first, second, block) for block, (first, second) in enumerate(values)]
)


@given(PAIRS)
def test_an_interval_holds_its_estimate(pairs: list[Pair]) -> None:
    interval = bootstrap(pairs, typical_ratio, resamples=200)
    assert interval is not None
    assert interval.low <= interval.high
    assert interval.pairs == len(pairs)


@given(PAIRS)
def test_swapping_the_arms_turns_the_ratio_and_keeps_the_p_value(pairs: list[Pair]) -> None:
    swapped = [Pair(pair.second, pair.first, pair.block) for pair in pairs]
    one, other = bootstrap(pairs, typical_ratio, resamples=50), bootstrap(swapped, typical_ratio, resamples=50)
    assert one is not None
    assert other is not None
    assert one.value * other.value == pytest.approx(1)
    assert sign_flip_p(pairs) == sign_flip_p(swapped)


def test_a_constant_ratio_has_an_interval_without_width() -> None:
    pairs = [Pair(2.0 * second, second, second) for second in range(1, 21)]
    for statistic in (typical_ratio, total_ratio, quantile_ratio(0.5)):
        interval = bootstrap(pairs, statistic, resamples=100)
        assert interval is not None
        assert (interval.low, interval.value, interval.high) == pytest.approx((2, 2, 2))


def test_fewer_than_five_blocks_make_no_interval() -> None:
    assert bootstrap([Pair(1, 2, block) for block in (0, 0, 1, 2, 3)], typical_ratio) is None


def test_pairs_of_one_block_share_their_luck() -> None:
    """Eight blocks of ten equal pairs know no more than eight pairs."""
    rng = random.Random(3)
    luck = [math.exp(rng.gauss(0, 0.3)) for _ in range(8)]
    crowded = [Pair(luck[block], 1.0, block) for block in range(8) for _ in range(10)]
    single = [Pair(luck[block], 1.0, block) for block in range(8)]
    many, few = bootstrap(crowded, typical_ratio), bootstrap(single, typical_ratio)
    assert many is not None
    assert few is not None
    assert (many.low, many.high) == pytest.approx((few.low, few.high))
    assert sign_flip_p(crowded) == sign_flip_p(single)


def spread_out(blocks: int) -> list[Pair]:
    """All faster, by very different amounts, so that Student's p-value is no help."""
    return [Pair(math.exp(2.0**block / 2.0 ** (blocks - 1)), 1.0, block) for block in range(blocks)]


def test_eight_equal_signs_are_as_rare_as_a_coin_says() -> None:
    assert sign_flip_p(spread_out(8)) == 2 / 2**8


def test_many_blocks_are_sampled_and_never_claim_certainty() -> None:
    assert sign_flip_p(spread_out(60), flips=999) == 1 / 1000


def test_beyond_the_floor_of_the_signs_the_spread_decides() -> None:
    close = [Pair(2.0 + 0.01 * block, 1.0, block) for block in range(8)]
    assert 0 < sign_flip_p(close) < 1e-6


@pytest.mark.parametrize(
    ("values", "p"), [([1.0, 2.0, 3.0, 4.0, 5.0], 0.01324), ([1.0, -1.0, 2.0, 0.5, 1.5, 1.0], 0.1051)]
)
def test_students_p_is_that_of_the_tables(values: list[float], p: float) -> None:
    assert student_p(values) == pytest.approx(p, rel=0.05)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value(p_values: list[float]) -> None:
    assert all(p <= adjusted <= 1 for p, adjusted in zip(p_values, holm(p_values), strict=True))


@pytest.mark.parametrize(
    ("share", "freedom", "tabled"), [(0.975, 4, 2.776), (0.975, 9, 2.262), (0.995, 19, 2.861), (0.975, 1000, 1.962)]
)
def test_student_quantiles_are_within_a_percent_of_the_tables(share: float, freedom: int, tabled: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(tabled, rel=0.01)


def test_a_hiccup_is_held_within_what_the_other_pairs_show() -> None:
    calm = [Pair(1.0 + 0.01 * block, 1.0, block) for block in range(19)]
    held = tamed([*calm, Pair(500.0, 1.0, 19)])
    assert max(pair.first for pair in held) < 1.2
    assert [pair.first for pair in held[:17]] == pytest.approx([pair.first for pair in calm[:17]])


def test_a_slope_with_outliers_is_found() -> None:
    values = [0.01 * i for i in range(40)]
    values[5], values[20] = 9.0, -9.0
    slope = theil_sen(values)
    assert slope is not None
    assert slope.value == pytest.approx(0.01)
    assert slope.low > 0
    assert slope.growth() == pytest.approx(math.exp(0.39))


def test_noise_has_no_slope() -> None:
    rng = random.Random(5)
    slopes = [theil_sen([rng.gauss(0, 1) for _ in range(40)]) for _ in range(100)]
    found = [slope for slope in slopes if slope is not None and not slope.low <= 0 <= slope.high]
    assert len(slopes) == 100
    assert len(found) <= 4


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_within_the_values(values: list[float], q: float) -> None:
    assert min(values) <= quantile(values, q) <= max(values)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Normal log ratios, 12 pairs: the plain percentile interval would cover in about 90 %."""
    rng, covered = random.Random(11), 0
    for _ in range(200):
        pairs = [Pair(math.exp(rng.gauss(0, 0.4)), 1.0, block) for block in range(12)]
        interval = bootstrap(pairs, typical_ratio, resamples=300)
        assert interval is not None
        covered += interval.low <= 1 <= interval.high
    assert covered >= 184
