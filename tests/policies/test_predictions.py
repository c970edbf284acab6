"""Output length and input size: what is said before, after, and about things only half seen."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from policies.change import PageHinkley
from policies.events import Arrived
from policies.inputs import Inputs
from policies.lengths import Histogram, Lengths, bin_of
from policies.lesson import Lesson
from policies.prefixes import Prefixes
from policies.settings import PredictorSettings, PrefixSettings
from policies.workload import gain_class, length_keys, size_bin, special_key

NOTHING = Lesson(
    backend="b", lane="plain", model="m", app="a", gain_class="m|a|text|default", system=1, features="",
    content="text", sampled=True, repeated=False, prompt_bytes=400, media=0, expected_input_tokens=100.0,
    prompt_tokens=100, cached_tokens=None, expected_cached_tokens=0.0, cap=None, output_tokens=50, censored=False,
    hit_cap=False, predicted_tokens=50.0, predicted_level=0, drafts=None, draft_tokens=None, accepted_tokens=None,
    first_accepted=None, steps=None, ttft_seconds=None, prefill_load=0.0, decode_seconds=None, crowd=1.0,
    prefilled=0.0, streamed=True, parallel=1,
)  # fmt: skip


def asked(app: str = "a", **more: object) -> Arrived:
    known: dict[str, object] = {"model": "m", "app": app, "surface": "chat", "prompt_bytes": 400, "system": 1}
    return Arrived(1.0, "r", **(known | more))  # type: ignore[arg-type]  # fields by name, as the test gives them


def taught(*outputs: int, **more: object) -> Lengths:
    lengths = Lengths(PredictorSettings())
    for tokens in outputs:
        lengths.learn(NOTHING._replace(output_tokens=tokens, **more))  # type: ignore[arg-type]  # likewise
    return lengths


def test_nothing_known_says_the_default_and_the_client_is_believed() -> None:
    lengths = Lengths(PredictorSettings())
    assert lengths.predict(asked(), 100.0) == (256.0, -1, "default")
    assert lengths.predict(asked(cap=10), 100.0).tokens == 10.0
    assert lengths.predict(asked(expected_output_tokens=77), 100.0) == (77.0, -1, "client")


def test_an_application_is_predicted_by_its_own_history() -> None:
    lengths = taught(*[100] * 6)
    told = lengths.predict(asked(), 100.0)
    assert told.source == "app+model+system+features+size"
    assert 79.0 <= told.tokens <= 127.0


def test_too_few_samples_fall_back_to_the_application_at_large_then_to_the_model() -> None:
    lengths = taught(*[100] * 6)
    assert lengths.predict(asked(system=9), 100.0).source == "app+model+size"
    assert lengths.predict(asked(system=9), 9000.0).source == "app+model"
    assert lengths.predict(asked(app="new"), 100.0).source == "model+size"
    assert lengths.predict(asked(app="new", model="other"), 100.0).source == "global"


def test_what_usually_ends_at_its_cap_is_predicted_at_the_cap() -> None:
    lengths = taught(*[100] * 6, censored=True, hit_cap=True)
    assert lengths.predict(asked(cap=500), 100.0).tokens == 500.0
    assert lengths.predict(asked(cap=500, n=2), 100.0).tokens == 1000.0


def test_where_answers_are_of_several_kinds_the_commonest_lengths_are_predicted() -> None:
    kinds = [10] * 8 + [150] * 3 + [300] * 9
    history = Histogram(watched=False)
    for number in range(200):
        history.add(bin_of(float(kinds[number * 7 % 20])), censored=False, capped=False, decay=1.0)
    tokens = history.says(0.0).tokens
    near = sum(tokens / 2 <= kind <= tokens * 2 for kind in kinds)
    assert near == 12, "the median, 139, would be near to three of twenty"


def test_equal_kinds_are_predicted_between_them_and_their_shorter_one() -> None:
    history = Histogram(watched=False)
    for number in range(100):
        history.add(bin_of(10.0 if number % 2 else 1000.0), censored=False, capped=False, decay=1.0)
    assert 9 < history.says(0.0).tokens < 12


def test_a_cancelled_answer_counts_as_at_least_so_long() -> None:
    history = Histogram(watched=True)
    for _ in range(10):
        history.add(bin_of(100.0), censored=False, capped=False, decay=0.99)
    before = history.says(0.0).tokens
    for _ in range(5):
        history.add(bin_of(10.0), censored=True, capped=False, decay=0.99)
    assert history.says(0.0).tokens == pytest.approx(before)


def test_a_change_of_habit_is_followed_within_a_dozen_answers() -> None:
    lengths = taught(*[40] * 100, *[900] * 12)
    assert abs(log2(lengths.predict(asked(), 100.0).tokens / 900)) < 0.5


def test_the_report_compares_with_a_global_median() -> None:
    lengths = Lengths(PredictorSettings())
    for number in range(300):
        app, tokens = ("short", 10) if number % 2 else ("long", 1000)
        arrived = asked(app)
        told = lengths.predict(arrived, 100.0)
        lengths.learn(
            NOTHING._replace(app=app, output_tokens=tokens, predicted_tokens=told.tokens, predicted_level=told.level)
        )
    report = lengths.report()
    assert report.within_2x is not None
    assert report.median_within_2x is not None
    assert report.coverage is not None
    assert report.within_2x > 0.9 > 0.6 > report.median_within_2x
    assert report.coverage > 0.9


def test_keys_are_bounded_and_the_least_recently_taught_leave() -> None:
    lengths = Lengths(PredictorSettings(max_keys=20))
    for number in range(200):
        lengths.learn(NOTHING._replace(app=f"a{number}"))
    assert len(lengths.histograms) == 20
    assert ("a199", "m") in lengths.histograms
    assert ("a0", "m") not in lengths.histograms


@given(st.lists(st.tuples(st.integers(1, 100_000), st.booleans()), min_size=1, max_size=200))
@given_settings(deadline=None)
def test_a_histogram_keeps_its_mass_and_a_median_within_what_it_saw(answers: list[tuple[int, bool]]) -> None:
    history = Histogram(watched=True)
    for tokens, censored in answers:
        history.add(bin_of(float(tokens)), censored, capped=False, decay=0.5)
    assert sum(history.bins.values()) == pytest.approx(history.total, rel=1e-5)
    places = sorted(history.bins)
    assert 2 ** (places[0] / 3) <= history.says(0.0).tokens <= 2 ** ((places[-1] + 1) / 3) * 1.001


@given(st.floats(1.0, 1e9))
def test_bins_hold_what_they_say(tokens: float) -> None:
    place = bin_of(tokens)
    assert 0 <= place < 48
    assert place == 47 or 2 ** (place / 3) <= tokens * 1.0001


def test_the_special_key_is_the_first_key() -> None:
    arrived = asked(features=("tools",), temperature=0.0)
    assert special_key(arrived, 100.0) == length_keys("a", "m", 1, ("tools",), False, size_bin(100.0))[0]


def test_classes_are_told_apart_by_temperature_and_repetition() -> None:
    bands = [gain_class(asked(temperature=t), False).rpartition("|")[2] for t in (None, 0.0, 0.3, 1.0, 1.5)]
    assert bands == ["default", "greedy", "low", "mid", "high"]
    assert gain_class(asked(), True) == "m|a|text|repeated"


def test_bytes_per_token_are_learnt_per_application_and_for_newcomers() -> None:
    inputs = Inputs(PredictorSettings())
    assert inputs.estimate(asked()) == 100.0
    inputs.learn(NOTHING._replace(prompt_tokens=200))
    assert inputs.estimate(asked()) == 200.0
    assert inputs.estimate(asked(app="new")) == 200.0
    assert inputs.estimate(asked(prompt_tokens=7)) == 7.0


def test_media_cost_is_learnt_apart_from_text() -> None:
    inputs = Inputs(PredictorSettings())
    assert inputs.estimate(asked(media=1)) == 700.0
    inputs.learn(NOTHING._replace(prompt_tokens=1100, media=1))
    assert inputs.estimate(asked(media=2)) == 2100.0
    assert inputs.estimate(asked()) == 100.0


def test_the_cached_share_is_learnt_where_prefixes_tell_nothing() -> None:
    inputs = Inputs(PredictorSettings())
    inputs.learn(NOTHING._replace(cached_tokens=80))
    assert inputs.cached_share(asked()) == 0.8
    assert inputs.cached_share(asked(app="new")) == 0.0


def test_prefixes_find_their_backend_and_age() -> None:
    memory = Prefixes(PrefixSettings(keep_seconds=100.0))
    memory.remember(((1, 500), (2, 900)), "a", 10.0)
    memory.remember(((1, 500),), "b", 20.0)
    assert memory.match(((1, 500), (2, 900), (3, 950)), 30.0) == ({"a": 900, "b": 500}, "a")
    assert memory.match(((1, 500), (7, 990)), 30.0) == ({"b": 500, "a": 500}, "b")
    assert memory.match(((2, 900),), 120.0) == ({}, None)
    memory.forget("a")
    assert memory.match(((2, 900),), 30.0) == ({}, None)


def test_prefix_memory_is_bounded() -> None:
    memory = Prefixes(PrefixSettings(max_entries=10))
    for number in range(100):
        memory.remember(((number, 10),), "a", float(number))
    assert len(memory.seen) == 10


def test_page_hinkley_hears_a_shift_and_not_the_noise() -> None:
    detector = PageHinkley()
    noise = [0.1 * ((7 * number) % 5 - 2) for number in range(400)]
    assert not any(detector.feed(value) for value in noise)
    fired = [number for number, value in enumerate(noise[:40]) if detector.feed(value + 1.0)]
    assert fired
    assert fired[0] <= 12
