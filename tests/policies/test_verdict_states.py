"""The verdict on a class: when it changes, when it does not, and how it finds its way back."""

import pytest

from policies.decision import PLAIN, SPECULATIVE
from policies.gain import DOES_NOT_PAY, PAYS, PROBING, UNKNOWN, Verdicts
from policies.settings import VerdictSettings

RULES = VerdictSettings()


def wobble(number: int) -> float:
    """A fixed sequence around 1."""
    return 1.0 + 0.1 * ((number * number * 31 + number * 17) % 11 - 5) / 5


def feed(verdicts: Verdicts, start: float, count: int, plain: float, fast: float) -> None:
    """``count`` requests on each lane, one a second, with these seconds per token."""
    for number in range(count):
        verdicts.learn("c", PLAIN, plain * wobble(number), start + number)
        verdicts.learn("c", SPECULATIVE, fast * wobble(number + 4), start + number)


def state(verdicts: Verdicts) -> str:
    return verdicts.classes["c"].state


def test_few_requests_are_no_verdict() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 8, 0.02, 0.01)
    assert state(verdicts) == UNKNOWN
    assert verdicts.classes["c"].gain(1.96).ratio == pytest.approx(2.0, rel=0.1)


def test_a_clear_gain_pays_and_a_clear_loss_does_not() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 12, 0.02, 0.01)
    assert state(verdicts) == PAYS
    other = Verdicts(RULES)
    feed(other, 0.0, 12, 0.01, 0.015)
    assert state(other) == DOES_NOT_PAY


def test_a_gain_within_the_margin_is_not_called_paying() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 60, 0.0102, 0.01)
    assert state(verdicts) == UNKNOWN


def test_a_lane_that_stops_paying_loses_its_verdict_but_not_within_the_dwell() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 15, 0.02, 0.01)
    since = verdicts.classes["c"].since
    feed(verdicts, 20.0, 30, 0.02, 0.04)
    assert verdicts.classes["c"].changes >= 1
    assert state(verdicts) == PAYS
    feed(verdicts, since + 61.0, 10, 0.02, 0.04)
    assert state(verdicts) == DOES_NOT_PAY


def test_a_lost_verdict_comes_back_by_probing_only() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 20, 0.01, 0.02)
    assert verdicts.arrive("c", 30.0) == (DOES_NOT_PAY, None)
    assert verdicts.arrive("c", 400.0)[0] == PROBING
    lanes = [verdicts.arrive("c", 400.0 + number)[1] for number in range(6)]
    assert SPECULATIVE in lanes
    verdicts.probing("c")
    assert verdicts.arrive("c", 407.0)[1] is None
    feed(verdicts, 410.0, 30, 0.02, 0.01)
    assert state(verdicts) == PAYS


def test_probing_that_confirms_the_loss_ends_it_again() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 20, 0.01, 0.02)
    verdicts.arrive("c", 400.0)
    feed(verdicts, 401.0, 6, 0.01, 0.02)
    assert state(verdicts) == DOES_NOT_PAY


def test_a_lane_unseen_for_long_is_due_for_one_request_but_not_in_a_rare_class() -> None:
    verdicts = Verdicts(RULES)
    feed(verdicts, 0.0, 20, 0.02, 0.01)
    for number in range(24):
        assert verdicts.arrive("c", 1000.0 + number)[1] is None
    assert verdicts.arrive("c", 1100.0)[1] is not None


def test_classes_are_bounded() -> None:
    verdicts = Verdicts(RULES)
    for number in range(2100):
        verdicts.learn(f"c{number}", PLAIN, 0.01, 0.0)
    assert len(verdicts.classes) == 2000
