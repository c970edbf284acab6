"""What is read from a stream: tokens from usage, never from chunks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.proof.answer import Acceptance, events_of, read_answer
from proxy.proof.arm import Place, Sample, completed

ASKED = Sample("plain", "p-1", "chat", Place("1 at once", 0, 0), started_at=10.0)


def event(at: float, **fields: object) -> tuple[float, bytes]:
    return at, b"data: " + json.dumps(fields).encode() + b"\n\n"


def said(at: float, text: str, finish: str | None = None) -> tuple[float, bytes]:
    return event(at, choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


VLLM = [
    event(10.1, choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]),
    said(11.0, "one"),
    said(11.5, " two three four five"),
    said(12.0, " six seven", "length"),
    event(
        12.4,
        choices=[],
        usage={"prompt_tokens": 7, "completion_tokens": 11, "prompt_tokens_details": {"cached_tokens": 2}},
        metrics={
            "speculative_decoding": {
                "num_spec_steps": 4,
                "num_draft_tokens": 16,
                "num_accepted_draft_tokens": 6,
                "acceptance_histogram": [1, 1, 1, 1, 0],
            }
        },
    ),
    (12.5, b"data: [DONE]\n\n"),
]
LLAMACPP = [
    said(11.0, "one"),
    said(11.001, " two"),
    event(
        12.0,
        choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}],
        timings={"predicted_n": 2, "prompt_n": 5, "cache_n": 0, "draft_n": 4, "draft_n_accepted": 1},
    ),
]


def test_time_per_token_comes_from_usage_and_not_from_chunks() -> None:
    """Eleven tokens in three chunks within one second after the first token: 100 ms each, not 500."""
    sample = completed(ASKED, read_answer(VLLM))
    assert sample.ttft_seconds == pytest.approx(1.0)
    assert sample.latency_seconds == pytest.approx(2.0)
    assert sample.tpot_seconds == pytest.approx(0.1)
    assert (sample.prompt_tokens, sample.cached_tokens, sample.completion_tokens) == (7, 2, 11)
    assert sample.events == 3


def test_a_histogram_becomes_acceptance_per_position() -> None:
    assert read_answer(VLLM).acceptance == Acceptance(16, 6, 4, (3, 2, 1, 0))


def test_llamacpp_tells_in_timings_and_without_usage() -> None:
    sample = completed(ASKED, read_answer(LLAMACPP))
    assert sample.completion_tokens == 2
    assert sample.acceptance == Acceptance(4, 1)
    assert sample.finish_reason == "stop"


def test_without_a_token_count_there_is_no_time_per_token() -> None:
    sample = completed(ASKED, read_answer(VLLM[:4]))
    assert sample.ok
    assert (sample.tpot_seconds, sample.completion_tokens) == (None, None)


def test_completions_speak_in_text() -> None:
    reads = [event(11.0, choices=[{"index": 0, "text": "Once", "finish_reason": None}])]
    assert read_answer(reads).text == "Once"


@pytest.mark.parametrize("reads", [[], [(11.0, b"data: [DONE]\n\n")], VLLM[:1]])
def test_an_answer_without_text_is_a_failure(reads: list[tuple[float, bytes]]) -> None:
    assert completed(ASKED, read_answer(reads)).error == "an answer without text"


def test_an_error_in_the_stream_is_a_failure() -> None:
    reads = [VLLM[1], event(11.2, error={"message": "out of memory", "code": 500})]
    sample = completed(ASKED, read_answer(reads))
    assert not sample.ok
    assert sample.error == "out of memory"


@given(st.lists(st.integers(1, 400), max_size=8))
def test_where_the_reads_are_cut_does_not_matter(cuts: list[int]) -> None:
    whole = b"".join(data for _, data in VLLM)
    pieces, rest = [], whole
    for cut in cuts:
        pieces.append((11.0, rest[:cut]))
        rest = rest[cut:]
    answer = read_answer([*pieces, (11.0, rest)])
    assert answer.text == "one two three four five six seven"
    assert answer.facts.completion_tokens == 11


@given(st.lists(st.tuples(st.floats(0, 9), st.binary(max_size=80)), max_size=6))
def test_reading_never_fails(reads: list[tuple[float, bytes]]) -> None:
    assert all(isinstance(found, dict) for _, found in events_of(reads))
    assert read_answer(reads).facts.events >= 0
