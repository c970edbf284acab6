"""The step-time learner against generators whose parameters are known to the test."""

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from policies.acceptance import Counters, Tally, Yields
from policies.events import Scraped
from policies.lesson import Lesson, seconds_per_token, tokens_per_step
from policies.ridge import Ridge, Ridge3
from policies.speed import Speed

PLAIN = Lesson(
    backend="b", lane="plain", model="m", app="a", gain_class="c", system=0, features="", content="text",
    sampled=True, repeated=False, prompt_bytes=0, media=0, expected_input_tokens=100.0, prompt_tokens=None,
    cached_tokens=None, expected_cached_tokens=0.0, cap=None, output_tokens=101, censored=False, hit_cap=False,
    predicted_tokens=50.0, predicted_level=0, drafts=None, draft_tokens=None, accepted_tokens=None,
    first_accepted=None, steps=None, ttft_seconds=None, prefill_load=0.0, decode_seconds=None, crowd=1.0,
    prefilled=0.0, streamed=True, parallel=1,
)  # fmt: skip


def wobble(number: int) -> float:
    """A fixed sequence around 1, so that no test draws lots."""
    return 1.0 + 0.05 * ((number * 7919) % 11 - 5) / 5


def served(number: int, fixed: float, slope: float, token: float, scale: float = 1.0) -> Lesson:
    """One request on a backend with these parameters: crowd, foreign prefill and prompt vary by number."""
    crowd, foreign, prompt = 1.0 + number % 13, 300.0 * (number * 5 % 17), 100.0 + 400.0 * (number % 7)
    steps = 100
    seconds = scale * steps * (fixed + slope * crowd) * wobble(number) + token * foreign
    return PLAIN._replace(
        crowd=crowd, prefilled=foreign, prefill_load=prompt, decode_seconds=seconds,
        ttft_seconds=fixed + token * prompt * wobble(number + 3),
    )  # fmt: skip


def test_step_and_prefill_times_are_learnt_from_requests() -> None:
    speed = Speed()
    for number in range(200):
        speed.learn(served(number, 0.008, 0.0002, 5e-5), 100)
    assert speed.step_seconds(1) == pytest.approx(0.0082, rel=0.1)
    assert speed.step_seconds(12) == pytest.approx(0.0104, rel=0.1)
    assert speed.prefill == pytest.approx(5e-5, rel=0.15)


def test_foreign_prefill_does_not_make_a_backend_look_slow() -> None:
    """Near saturation: nine tenths of each decode are other requests' prefill, and it costs less than first tokens say."""
    speed = Speed()
    for number in range(300):
        lesson = served(number, 0.008, 0.0002, 5e-5)
        foreign = 20_000.0 + 10_000.0 * (number % 6)
        seconds = 20 * (0.008 + 0.0002 * lesson.crowd) + 4e-5 * foreign
        speed.learn(lesson._replace(decode_seconds=seconds, prefilled=foreign, output_tokens=21), 20)
    assert speed.step_seconds(6) < 2.5 * (0.008 + 0.0012)


def test_a_backend_that_slows_down_is_believed_within_twenty_requests() -> None:
    speed = Speed()
    for number in range(100):
        speed.learn(served(number, 0.008, 0.0002, 5e-5), 100)
    for number in range(20):
        speed.learn(served(number, 0.008, 0.0002, 5e-5, scale=2.0), 100)
    assert speed.step_seconds(6) > 1.5 * (0.008 + 0.0012)


def test_one_wild_answer_moves_little() -> None:
    speed = Speed()
    for number in range(100):
        speed.learn(served(number, 0.008, 0.0002, 5e-5), 100)
    before = speed.step_seconds(6)
    speed.learn(served(1, 0.008, 0.0002, 5e-5, scale=50.0), 100)
    assert speed.step_seconds(6) == pytest.approx(before, rel=0.25)


def test_what_was_learnt_survives_as_numbers() -> None:
    speed, copy = Speed(), Speed()
    for number in range(30):
        speed.learn(served(number, 0.008, 0.0002, 5e-5), 100)
    copy.load(speed.dump())
    assert (copy.base, copy.slope, copy.prefill, copy.completions) == (
        speed.base, speed.slope, speed.prefill, speed.completions,
    )  # fmt: skip


FACTS = st.tuples(st.floats(0, 1e3), st.floats(0, 1e6), st.floats(0, 1e4), st.floats(1, 1e3), st.floats(1, 1e5))


@given(st.lists(FACTS, max_size=50))
@given_settings(deadline=None)
def test_no_facts_make_a_speed_that_cannot_be(facts: list[tuple[float, float, float, float, float]]) -> None:
    speed = Speed()
    for ttft, prefilled, seconds, crowd, steps in facts:
        lesson = PLAIN._replace(ttft_seconds=ttft, prefilled=prefilled, decode_seconds=seconds, crowd=crowd)
        speed.learn(lesson, steps)
        assert 0.0 < speed.base < 1e9
        assert 0.0 <= speed.slope < 1e9
        assert 0.0 < speed.prefill < 1e9


def test_three_parameters_are_found_where_they_are() -> None:
    ridge = Ridge3()
    for number in range(60):
        x, z = float(number % 7), float(number % 5)
        ridge.add(x, z, 2.0 + 3.0 * x + 4.0 * z, 1.0)
    assert ridge.solve(((0.0, 10.0),) * 3) == pytest.approx((2.0, 3.0, 4.0), rel=0.02)


def test_without_evidence_priors_speak() -> None:
    assert Ridge().solve(1.0, 0.5, 2.0, 0.5) == pytest.approx((1.0, 2.0))
    assert Ridge3().solve(((1.0, 0.5), (2.0, 0.5), (3.0, 0.5))) == pytest.approx((1.0, 2.0, 3.0))


def spoken(tokens: int, steps: float, drafted: int, accepted: int, **more: object) -> Lesson:
    facts: dict[str, object] = {
        "lane": "speculative", "output_tokens": tokens, "steps": steps, "draft_tokens": drafted,
        "accepted_tokens": accepted, "drafts": int(steps), "decode_seconds": 1.0,
    }  # fmt: skip
    return PLAIN._replace(**(facts | more))  # type: ignore[arg-type]  # fields by name


def test_nothing_drafted_is_unknown_not_zero() -> None:
    assert Tally().acceptance() == (None, None, 0, 0.0, None)
    plain = Tally()
    plain.learn(PLAIN)
    assert plain.acceptance().rate is None


def test_tokens_per_step_are_a_harmonic_mean() -> None:
    tally = Tally()
    tally.learn(spoken(101, 100.0, 300, 0))
    tally.learn(spoken(401, 100.0, 300, 300))
    seen = tally.acceptance()
    assert seen.tokens_per_step == pytest.approx(1.6, rel=0.02)
    assert seen.rate == pytest.approx(0.5, rel=0.02)
    assert seen.requests == 2


def test_classes_differ_and_a_new_class_starts_from_the_backend() -> None:
    yields = Yields(speculative=True, depth=3)
    for _ in range(60):
        yields.learn(spoken(201, 66.7, 200, 133, gain_class="code"))
        yields.learn(spoken(201, 200.0, 600, 0, gain_class="chat"))
    assert yields.of("code") > 2.5
    assert yields.of("chat") < 1.2
    assert 1.2 < yields.of("new") < 2.5


def test_repeats_do_not_teach_others() -> None:
    yields = Yields(speculative=True, depth=3)
    before = yields.of("chat")
    for _ in range(50):
        yields.learn(spoken(201, 50.0, 150, 150, gain_class="m|a|text|repeated", repeated=True))
    assert yields.of("chat") == before
    assert yields.of("m|a|text|repeated") > 3.0


def test_without_any_signal_the_step_time_of_a_class_stands_in() -> None:
    yields = Yields(speculative=True, depth=3)
    for _ in range(100):
        yields.learn_factor("fast", 0.5)
    assert yields.of("fast") == pytest.approx(2.0, rel=0.05)
    assert yields.of("other") == 1.0


def test_a_plain_backend_yields_one_token_per_step() -> None:
    assert Yields(speculative=False, depth=0).of("any") == 1.0
    assert tokens_per_step(PLAIN) is None
    assert seconds_per_token(PLAIN._replace(decode_seconds=2.0)) == 0.02


def test_counters_become_deltas_and_a_restart_is_not_negative() -> None:
    counters = Counters()
    page = Scraped(1.0, "b", drafts=100.0, draft_tokens=300.0, accepted_tokens=150.0, generated_tokens=250.0)
    assert counters.learn(page) is None
    assert counters.learn(page._replace(at=2.0)) is None
    more = page._replace(at=3.0, drafts=200.0, draft_tokens=600.0, accepted_tokens=350.0, generated_tokens=550.0)
    assert counters.learn(more) == (3.0, 100.0)
    restarted = page._replace(at=4.0, drafts=10.0, draft_tokens=30.0, accepted_tokens=5.0, generated_tokens=15.0)
    assert counters.learn(restarted) == (1.5, 10.0)
    seen = counters.acceptance()
    assert seen.rate is not None
    assert seen.requests == 0


def test_absent_counters_say_nothing_and_silence_is_noted() -> None:
    counters = Counters()
    for number in range(3):
        assert counters.learn(Scraped(float(number), "b", generated_tokens=1000.0 * number)) is None
    assert counters.quiet_tokens == 2000.0
    assert counters.acceptance().rate is None


def test_a_gauge_serves_where_there_are_no_counters() -> None:
    counters = Counters()
    counters.learn(Scraped(1.0, "b", generated_tokens=0.0, acceptance_length=2.0))
    assert counters.learn(Scraped(2.0, "b", generated_tokens=100.0, acceptance_length=2.5)) == (2.5, 40.0)
