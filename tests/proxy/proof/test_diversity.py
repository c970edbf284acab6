"""Repeated, templated and padded texts are seen; different ones pass."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.proof.before import prompt_findings
from proxy.proof.diversity import OutputMemory, measure, output_repetition, pieces, shingles
from proxy.proof.prompts import Prompt, built_in

TEXTS = [prompt.text for prompt in built_in()]


def names(texts: list[str]) -> set[str]:
    prompts = [Prompt(str(number), "any", text) for number, text in enumerate(texts)]
    return {finding.name for finding in prompt_findings(prompts)[1]}


def test_one_prompt_many_times_is_a_trap() -> None:
    assert {"repeated-prompts", "near-duplicate-prompts", "shared-text"} <= names(TEXTS[:1] * 10)


def test_a_few_repeats_among_many_are_seen() -> None:
    assert names(TEXTS + TEXTS[:5]) == {"repeated-prompts"}


def test_a_template_with_other_numbers_in_it_is_a_repeat() -> None:
    asked = "Our shop sold {} shirts in {} and {} in the year after; by how many percent did the sales of shirts grow?"
    templated = [asked.format(n, 1990 + n, n * 3) for n in range(20)]
    assert {"near-duplicate-prompts", "shared-text"} <= names(templated)


def test_different_questions_over_the_same_long_text_share_it() -> None:
    page = next(text for text in TEXTS if len(text) > 1500)
    assert "shared-text" in names([f"{question}\n\n{page}" for question in TEXTS[:8]])


@pytest.mark.parametrize("phrase", ["the quick brown fox jumps over the lazy dog ", "all work and no play "])
def test_a_phrase_repeated_to_fill_the_prompt_is_padding(phrase: str) -> None:
    assert "padded-prompts" in names([f"{text} {phrase * 60}" for text in TEXTS[:20]])
    assert "padded-prompts" in names([f"{number} {phrase * 60}" for number in range(20)])


def test_padding_that_counts_is_still_padding() -> None:
    counted = [
        "".join(f"line {n} of the document follows here " for n in range(start, start + 50)) for start in (0, 900)
    ]
    assert "padded-prompts" in names(counted)


def test_one_padded_prompt_among_many_is_only_marked() -> None:
    assert names([*TEXTS[:40], "row after row after row " * 30]) == {"some-padded-prompts"}


def test_chinese_is_measured_by_character() -> None:
    assert pieces("修伞铺, 2 OK") == ["修", "伞", "铺", ",", "2", "ok"]
    assert "shared-text" in names(
        ["请把下面这段话翻译成英文并保持语气" + end for end in ("甲乙丙", "丁戊己", "庚辛壬")]
    )


def test_an_answer_given_before_is_recognised() -> None:
    memory = OutputMemory()
    words = [str(number) for number in range(100)]
    assert memory.emit(" ".join(words)) == (0.0, 0.0)
    assert memory.emit(" ".join(words)) == (1.0, 0.0)
    assert memory.emit("too short to say") is None


def test_a_loop_is_repetition_within() -> None:
    earlier, within, judged = output_repetition(["again and " * 60])
    assert (earlier, judged) == (0.0, 1)
    assert within > 0.9


@given(st.lists(st.text(), min_size=1, max_size=8))
def test_all_shares_are_shares(texts: list[str]) -> None:
    seen = measure(texts)
    assert all(0 <= share <= 1 for share in seen[1:])
    assert measure(texts * 2).duplicates >= 0.5


@given(st.lists(st.text(min_size=1, max_size=3), max_size=30), st.integers(1, 10))
def test_shingles_cover_everything(found: list[str], size: int) -> None:
    runs = shingles(found, size)
    assert {piece for run in runs for piece in run} == set(found)
    assert all(len(run) == min(size, len(found)) for run in runs)


def test_random_words_pass() -> None:
    rng = random.Random(1)
    vocabulary = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("an", "el", "ir", "om", "ush", "aven", "ock")]
    assert names([" ".join(rng.choices(vocabulary, k=60)) for _ in range(60)]) == set()
