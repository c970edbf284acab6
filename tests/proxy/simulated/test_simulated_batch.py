"""Continuous batching without a clock: what a step takes, who is in it, and what it adds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulated import tokens
from proxy.simulated.batch import Batch, Job, Order
from proxy.simulated.character import Character
from proxy.simulated.writer import kind_of


def order(prompt: str = "p", prompt_tokens: int = 10, cap: int = 50, **more: Any) -> Order:
    return Order(prompt, prompt_tokens, cap, temperature=0, ignore_eos=True)._replace(**more)


def drain(batch: Batch) -> tuple[int, float]:
    """Run until idle: steps, seconds."""
    steps, seconds = 0, 0.0
    while batch.running or batch.waiting:
        step = batch.step()
        steps, seconds = steps + 1, seconds + step.seconds
    return steps, seconds


def test_a_step_is_longer_the_more_requests_drafts_and_prompt_tokens_are_in_it() -> None:
    alone, crowded, drafting = (Batch(Character(depth=depth, acceptance=0)) for depth in (0, 0, 4))
    alone.admit(order())
    drafting.admit(order())
    for number in range(8):
        crowded.admit(order(str(number)))
    first, crowd, _ = alone.step().seconds, crowded.step().seconds, drafting.step()
    assert crowd > first
    assert crowded.step().seconds > alone.step().seconds
    assert drafting.step().seconds > alone.step().seconds


def test_a_long_prompt_is_read_in_chunks_while_others_decode() -> None:
    batch = Batch(Character(chunk_tokens=100))
    batch.admit(order("short", 10))
    batch.step()
    batch.admit(order("long", 250))
    grown = [len(batch.step().grown) for _ in range(4)]
    assert grown == [1, 1, 2, 2]


def test_speculation_that_is_accepted_saves_steps_and_speculation_that_is_not_costs_time() -> None:
    results = {}
    for acceptance in (0.0, 1.0, None):
        batch = Batch(Character(depth=0 if acceptance is None else 4, acceptance=acceptance or 0.0))
        batch.admit(order(cap=101))
        results[acceptance] = drain(batch)
    assert results[1.0][0] == 21
    assert results[0.0][0] == results[None][0] == 101
    assert results[1.0][1] < results[None][1] < results[0.0][1]


def test_an_ngram_method_drafts_only_now_and_then_and_then_most_of_it_holds() -> None:
    batch = Batch(Character(depth=3, method="ngram"))
    job = batch.admit(order("```\ndef f(x):\n    return x\n```\nRename f.", cap=400))
    drain(batch)
    assert 0 < job.steps < job.tokens - job.accepted
    assert job.accepted > 0.6 * job.drafted


def test_dropping_a_request_frees_its_place_for_the_next() -> None:
    batch = Batch(Character(max_requests=1))
    first, second = batch.admit(order("a")), batch.admit(order("b"))
    batch.step()
    assert (batch.running, list(batch.waiting)) == ([first], [second])
    batch.drop(first)
    batch.step()
    assert batch.running == [second]
    assert batch.counters.finished == {"abort": 1}
    batch.drop(second)
    batch.drop(second)
    assert batch.counters.finished == {"abort": 2}


def test_an_answer_ends_by_itself_within_its_cap_or_is_cut_by_it() -> None:
    batch = Batch(Character())
    free, cut = batch.admit(order(cap=10_000, ignore_eos=False)), batch.admit(order(cap=3, ignore_eos=False))
    drain(batch)
    assert (free.finish, cut.finish, cut.tokens) == ("stop", "length", 3)
    assert free.tokens == tokens.count(free.text)


@pytest.mark.parametrize(
    ("prompt", "wants_json", "kind"),
    [
        ("Tell me of the sea.", False, "text"),
        ("Tell me of the sea.", True, "json"),
        ("```\nx = 1\n```\nWhat is it?", False, "code"),
        ("def f(x): return x\nRename f to g.", False, "code-edit"),
        ("word " * 4000, False, "long-input"),
    ],
)
def test_kinds_of_content(prompt: str, wants_json: bool, kind: str) -> None:
    assert kind_of(prompt, wants_json) == kind


@given(st.text())
def test_pieces_joined_are_the_text_and_ids_bring_it_back(text: str) -> None:
    cut = tokens.pieces(text)
    assert "".join(cut) == text
    ids = [tokens.token_id(piece) for piece in cut]
    assert all(0 < number < 2**53 for number in ids)
    assert tokens.text_of(ids) == text
    assert tokens.count(text) == len(cut)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 300)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(1, 3),
    st.sampled_from(["vllm", "llamacpp"]),
)
def test_every_token_is_counted_once(asked: list[tuple[int, int]], depth: int, room: int, dialect: str) -> None:
    batch = Batch(Character(dialect=dialect, depth=depth, max_requests=room, chunk_tokens=64))
    jobs: list[Job] = [batch.admit(order(str(n), prompt, cap)) for n, (cap, prompt) in enumerate(asked)]
    drain(batch)
    assert [job.tokens for job in jobs] == [cap for cap, _ in asked]
    assert batch.counters.generated == sum(cap for cap, _ in asked)
    assert sum(batch.counters.accepted) == sum(job.accepted for job in jobs)
    assert batch.counters.drafts == sum(job.steps for job in jobs)
    assert batch.counters.finished == {"length": len(jobs)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"dialect": "tgi"},
        {"method": "eagle"},
        {"acceptance": 1.5},
        {"step_ms": -1},
        {"max_requests": 0},
        {"output_scale": 0},
    ],
)
def test_a_character_that_cannot_be_simulated_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot be"):
        Character(**wrong)
