"""Depths predicted from the positions of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.proof.depth import Prediction, Seen, acceptance_length, extended, next_depth, predict, worth_running
from proxy.proof.sweep import pilot_worth

ALPHA = 0.7


def positions(alpha: float, depth: int) -> tuple[float, ...]:
    return tuple(alpha**place for place in range(1, depth + 1))


def seconds(alpha: float, cost: float, depth: int, covered: float = 1.0) -> float:
    """Seconds per token of an engine with a plain step of one second, from the closed form."""
    length = (1 - alpha ** (depth + 1)) / (1 - alpha)
    return 1 - covered + covered * (1 + cost * depth) / length


@given(st.floats(0.05, 0.95), st.integers(1, 12))
def test_acceptance_length_is_the_closed_form_for_a_constant_rate(alpha: float, depth: int) -> None:
    assert acceptance_length(positions(alpha, depth), depth) == pytest.approx((1 - alpha ** (depth + 1)) / (1 - alpha))


@given(st.floats(0.05, 0.95), st.integers(2, 6), st.integers(1, 12))
def test_positions_beyond_go_on_at_the_last_rate(alpha: float, known: int, wanted: int) -> None:
    assert extended(positions(alpha, known), wanted) == pytest.approx(list(positions(alpha, wanted)))


@pytest.mark.parametrize(
    ("cost", "alpha", "best"),
    [(0.14, 0.4, 1), (0.14, 0.6, 3), (0.14, 0.7, 3), (0.14, 0.8, 5), (0.14, 0.9, 8), (0.05, 0.4, 2), (0.05, 0.8, 8)],
)
def test_the_best_depth_is_the_published_one(cost: float, alpha: float, best: int) -> None:
    seen = [Seen(0, 1.0), Seen(12, seconds(alpha, cost, 12), positions(alpha, 12))]
    predicted = predict(seen, range(1, 13))
    assert min(predicted, key=lambda p: p.seconds_per_token).depth == best


@given(st.floats(0.1, 0.95), st.floats(0.0, 0.3), st.floats(0.1, 1.0), st.integers(2, 10))
def test_a_plain_and_a_deep_arm_foretell_all_between(alpha: float, cost: float, covered: float, depth: int) -> None:
    seen = [Seen(0, 1.0), Seen(depth, seconds(alpha, cost, depth, covered), positions(alpha, depth), covered)]
    for prediction in predict(seen, range(1, depth + 1)):
        assert prediction.seconds_per_token == pytest.approx(seconds(alpha, cost, prediction.depth, covered))
        assert prediction.cost == pytest.approx(cost, abs=1e-6)


def test_one_depth_alone_is_read_with_the_stated_cost() -> None:
    (predicted,) = predict([Seen(6, seconds(ALPHA, 0.1, 6), positions(ALPHA, 6))], [3], cost=0.1)
    assert predicted.seconds_per_token == pytest.approx(seconds(ALPHA, 0.1, 3))


def test_noise_never_makes_a_draft_token_cheaper_than_nothing() -> None:
    deeper_but_faster = [Seen(0, 1.0), Seen(4, 0.2, positions(0.5, 4))]
    assert all(p.cost == 0 for p in predict(deeper_but_faster, [1, 2, 3, 4]))


def test_without_positions_nothing_is_predicted() -> None:
    with pytest.raises(ValueError, match="position"):
        predict([Seen(4, 1.0)], [2])


def test_only_depths_that_promise_something_are_run() -> None:
    predicted = predict([Seen(0, 1.0), Seen(10, seconds(0.5, 0.14, 10), positions(0.5, 10))], range(1, 11))
    measured = {10: seconds(0.5, 0.14, 10)}
    ran = []
    while (depth := next_depth(predicted, measured)) is not None:
        ran.append(depth)
        measured[depth] = seconds(0.5, 0.14, depth)
    assert ran[0] == min(predicted, key=lambda p: p.seconds_per_token).depth
    assert set(ran) == {p.depth for p in predicted if p.seconds_per_token <= min(measured.values()) * 1.05}
    assert len(ran) < 5


def test_worth_running_is_near_the_best_prediction() -> None:
    predicted = predict([Seen(0, 1.0), Seen(8, seconds(0.8, 0.05, 8), positions(0.8, 8))], [1, 4, 6, 8])
    assert worth_running(predicted, 0.1) == [6, 8]
    assert worth_running(predicted, 9) == [1, 4, 6, 8]


def test_a_handful_of_prompts_leaves_no_depth_out_that_a_longer_pilot_would() -> None:
    """As measured: three prompts predicted the depth that was best to be 12 % behind."""
    told = [Prediction(8, 2.3, 0.0224, False, 0.49), Prediction(16, 2.4, 0.0251, False, 0.49)]
    assert worth_running(told, pilot_worth(3)) == [8, 16]
    assert worth_running(told, pilot_worth(1000)) == [8]
