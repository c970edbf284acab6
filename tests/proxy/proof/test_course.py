"""Who is asked what, when."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engines.base import Scrape
from proxy.proof.arm import PLAIN, SPECULATIVE, Arm, Client, Sample
from proxy.proof.counters import acceptance_of, difference, turn_shares
from proxy.proof.course import Course, Listener, Load, arm_order, plan, run
from proxy.proof.prompts import Prompt
from proxy.simulated.character import Character
from proxy.simulated.running import simulated

PROMPTS = tuple(Prompt(f"p{number}", "chat", f"Tell me of thing number {number}.") for number in range(12))


def test_two_arms_alternate_a_b_b_a() -> None:
    bursts = plan({Load(concurrency=1): PROMPTS[:4]}, arms=2)
    assert [burst.arm for burst in bursts] == [0, 1, 1, 0, 0, 1, 1, 0]
    assert [burst.prompts[0].id for burst in bursts] == ["p0", "p0", "p1", "p1", "p2", "p2", "p3", "p3"]


@given(st.integers(2, 6), st.integers(0, 60))
def test_every_arm_stands_equally_often_in_every_place(arms: int, start: int) -> None:
    places = Counter(
        (place, arm)
        for block in range(start * 2 * arms, (start + 1) * 2 * arms)
        for place, arm in enumerate(arm_order(block, arms))
    )
    assert set(places.values()) == {2}


@given(
    st.integers(1, 40), st.sampled_from([Load(concurrency=1), Load(concurrency=4), Load(concurrency=16), Load(rate=3)])
)
def test_every_prompt_goes_once_to_each_arm(count: int, load: Load) -> None:
    prompts = [Prompt(str(number), "any", "") for number in range(count)]
    asked = Counter((burst.arm, prompt.id) for burst in plan({load: prompts}, arms=3) for prompt in burst.prompts)
    assert asked == {(arm, prompt.id): 1 for arm in range(3) for prompt in prompts}


def test_loads_have_blocks_of_their_own() -> None:
    bursts = plan({Load(concurrency=1): PROMPTS[:2], Load(concurrency=2): PROMPTS[2:4]}, arms=2)
    blocks = {burst.block: burst.load.name for burst in bursts}
    assert blocks == {0: "1 at once", 1: "1 at once", 2: "2 at once"}


def test_crowds_are_cut_into_blocks_enough_for_a_test() -> None:
    assert Load(concurrency=1).block_size(160) == 1
    assert Load(concurrency=4).block_size(160) == 8
    assert Load(concurrency=16).block_size(160) == 16


@pytest.mark.parametrize("wrong", [{}, {"concurrency": 1, "rate": 1.0}, {"concurrency": 0}, {"rate": 0.0}])
def test_a_load_is_one_positive_thing(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"load|positive"):
        Load(**wrong)  # type: ignore[arg-type]  # what a command line may bring


def test_counters_that_went_backwards_tell_nothing() -> None:
    assert difference(Scrape(drafts=9.0, draft_tokens=36.0), Scrape(drafts=2.0, draft_tokens=8.0)) is None


def test_counters_that_appear_later_began_at_nothing() -> None:
    moved = difference(Scrape(), Scrape(drafts=2.0, accepted_per_position=(2.0, 1.0)))
    assert moved is not None
    assert (moved.drafts, moved.per_position) == (2.0, (2.0, 1.0))


def character(depth: int) -> Character:
    return Character(step_ms=0, token_us=0, draft_ms=0, prefill_us=0, depth=depth, request_metrics=False)


def arm(name: str, url: str) -> Arm:
    body = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
    return Arm(name, url, "simulated-model", body=body, engine="vllm")


async def measure(course: Course, load: Load, urls: tuple[str, str], told: Listener) -> None:
    async with Client(arm(PLAIN, urls[0])) as one, Client(arm(SPECULATIVE, urls[1])) as other:
        await run(course, plan({load: PROMPTS}, 2), (one, other), told)


@pytest.mark.parametrize("load", [Load(concurrency=1), Load(concurrency=3), Load(rate=500)])
async def test_a_run_measures_every_prompt_on_both_arms(load: Load) -> None:
    course, heard = Course(), list[Sample]()
    async with simulated(character(0)) as plain, simulated(character(4)) as speculative:
        await measure(course, load, (plain, speculative), heard.append)
    assert course.planned == len(course.samples) == 24
    assert heard == course.samples
    assert all(sample.ok and sample.completion_tokens == 24 for sample in course.samples)
    assert sorted(sample.place.order for sample in course.samples) == list(range(24))


async def test_counters_tell_what_requests_do_not() -> None:
    """No per-request metrics: drafts and positions come from the differences of the counters."""
    course = Course()
    async with simulated(character(0)) as plain, simulated(character(4)) as speculative:
        await measure(course, Load(concurrency=1), (plain, speculative), lambda sample: None)
    own = [sample for sample in course.samples if sample.arm == SPECULATIVE]
    drafting = acceptance_of(course, SPECULATIVE, own, None)
    assert drafting is not None
    assert drafting.drafts is not None
    assert drafting.draft_tokens is not None
    assert drafting.drafts < drafting.draft_tokens <= 4 * drafting.drafts  # an answer's last draft is cut to its end
    assert drafting.accepted_tokens == sum(drafting.per_position)
    assert sum(tokens or 0 for _, _, tokens in turn_shares(course, SPECULATIVE)) == 12 * 24
    plain_drafting = acceptance_of(course, PLAIN, [s for s in course.samples if s.arm == PLAIN], None)
    assert plain_drafting is not None
    assert plain_drafting.draft_tokens is None
