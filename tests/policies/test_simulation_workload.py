"""Chance in simulated runs: reproducible, of the stated shape, and the same for every policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.simulation_workload import Acceptance, Asked, Drafter, at_rate, jobs, named, normal, uniform

CHAT = Acceptance.of_histogram([0.4, 0.2, 0.1, 0.3], spread=0.3)
DRAFTER = Drafter("d", 3, {"chat": CHAT, "code": Acceptance.of_chance(0.8, 3, 0.2)})
LOOKUP = Drafter("n", 3, {"chat": Acceptance.of_chance(0.85, 3, 1.0, hits=0.15)})


def test_draws_are_uniform_and_normal_and_never_change() -> None:
    draws = [uniform(7, 1, n) for n in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(0.5, abs=0.01)
    assert sum(draw < 0.1 for draw in draws) / len(draws) == pytest.approx(0.1, abs=0.01)
    bells = [normal(7, 2, n) for n in range(20_000)]
    assert sum(bells) / len(bells) == pytest.approx(0.0, abs=0.03)
    assert sum(bell * bell for bell in bells) / len(bells) == pytest.approx(1.0, abs=0.03)
    assert uniform(1, 2, 3) == 0.7693861649585424
    assert named("chat") == named("chat") != named("tchat")


@given(st.integers(0, 2**70), st.integers(0, 20), st.integers(0, 2**70))
def test_every_draw_lies_in_its_interval(seed: int, stream: int, index: int) -> None:
    assert 0.0 <= uniform(seed, stream, index) < 1.0


def test_a_histogram_gives_mean_and_variance_and_must_be_one() -> None:
    assert CHAT.length == pytest.approx(1 + 0.2 + 0.2 + 0.9)
    assert CHAT.variance == pytest.approx(0.2 + 0.4 + 2.7 - 1.3**2)
    assert Acceptance.of_histogram([40, 20, 10, 30], 0.3) == pytest.approx(CHAT)
    for wrong in ([0.0, 0.0], [1.0, -0.1]):
        with pytest.raises(ValueError, match="shares"):
            Acceptance.of_histogram(wrong, 0.0)


def test_constant_chance_has_the_textbook_length() -> None:
    known = Acceptance.of_chance(0.7, 4, 0.0)
    assert known.length == pytest.approx((1 - 0.7**5) / (1 - 0.7))
    assert Acceptance.of_chance(0.7, 4, 0.0, hits=0.5).length == pytest.approx(1 + (known.length - 1) / 2)


def test_steps_come_to_the_stated_acceptance_over_many_requests() -> None:
    tokens = 400
    taken = [DRAFTER.steps("chat", tokens, normal(1, 3, n), normal(1, 4, n))[0] for n in range(4000)]
    lengths = [tokens / steps for steps in taken]
    mean = sum(lengths) / len(lengths)
    spread = (sum((one - mean) ** 2 for one in lengths) / len(lengths)) ** 0.5
    assert mean == pytest.approx(CHAT.length, rel=0.02)
    assert 0.25 < spread / (mean - 1) < 0.40


@given(st.integers(0, 5000), st.floats(-6, 6), st.floats(-6, 6), st.sampled_from([DRAFTER, LOOKUP]))
def test_steps_keep_to_what_the_depth_allows(tokens: int, luck: float, noise: float, drafter: Drafter) -> None:
    steps, share = drafter.steps("chat", tokens, luck, noise)
    assert -(-tokens // 4) <= steps <= tokens
    assert 0.0 <= share <= 1.0


def test_a_lookup_drafter_drafts_more_where_it_hits_more() -> None:
    _, unlucky = LOOKUP.steps("chat", 300, -1.0, 0.0)
    _, lucky = LOOKUP.steps("chat", 300, 1.0, 0.0)
    assert 0.0 < unlucky < lucky <= 1.0


def test_an_unmeasured_kind_takes_the_mean_of_the_others() -> None:
    assert DRAFTER.acceptance("poems").length == pytest.approx((CHAT.length + DRAFTER.kinds["code"].length) / 2)


def test_jobs_draw_kind_by_application_and_hold_their_luck() -> None:
    trace = [Asked(float(n), f"app-{n % 7}", 100, 10) for n in range(70)]
    made = jobs(trace, seed=3, kinds={"app-0": "code", "x": "chat"})
    again = jobs(trace, seed=3, kinds={"app-0": "code", "x": "chat"})
    assert made == again != jobs(trace, seed=4, kinds={"app-0": "code", "x": "chat"})
    assert {job.kind for job in made if job.app == "app-0"} == {"code"}
    assert all(len({job.kind for job in made if job.app == f"app-{n}"}) == 1 for n in range(7))
    assert all(300 <= job.prompt_bytes <= 500 for job in made)


def test_at_rate_keeps_the_shape_of_arrivals() -> None:
    trace = [Asked(at, "a", 1, 1) for at in (10.0, 11.0, 13.0, 20.0)]
    paced = at_rate(trace, rate=3.0)
    assert [asked.at for asked in paced] == pytest.approx([0.0, 0.1, 0.3, 1.0])
