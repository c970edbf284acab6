"""What each engine's answers tell. Re-made small after recordings of vLLM 0.32 and llama.cpp; SGLang after its source."""

import json
from collections.abc import Iterable

import pytest

from proxy.meter import meter_for
from proxy.meter.base import Facts, Meter
from proxy.meter.choices import Choices
from proxy.meter.messages import Messages
from proxy.meter.reader import Reader
from proxy.meter.responses import Responses

SSE, JSON = "text/event-stream", "application/json"


def event(data: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


DONE = b"data: [DONE]\n\n"


def vllm(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    """A chat chunk in vLLM's order of members."""
    choice: dict[str, object] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event({**head, "choices": [choice], **more})


def vllm_usage(prompt: int, completion: int, **more: object) -> bytes:
    usage = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event({**head, "choices": [], "usage": usage, **more})


def llama(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    """A chat chunk in llama.cpp's order of members."""
    return event({"choices": [{"finish_reason": finish, "index": 0, "delta": delta}], "created": 1, "id": "c", **more})


def read(reader: Reader, reads: Iterable[bytes], content_type: str = SSE, strip: bool = False) -> tuple[bytes, Meter]:
    """One read per second."""
    meter = meter_for(reader, content_type, "", strip)
    out = b""
    second = 0
    for second, data in enumerate(reads, 1):
        out += meter.feed(data, float(second))
    return out + meter.end(float(second)), meter


VLLM_NGRAM = [
    vllm({"role": "assistant", "content": ""}),
    vllm({"content": "one"}),
    vllm({"content": " two three four five six seven"}),
    vllm({"content": " eight nine ten"}, "length"),
    vllm_usage(20, 10),
    DONE,
]


def test_vllm_sends_one_event_per_step() -> None:
    out, meter = read(Choices(), VLLM_NGRAM)
    assert out == b"".join(VLLM_NGRAM)
    assert meter.facts() == Facts(
        prompt_tokens=20, cached_tokens=0, completion_tokens=10, finish_reason="length", events=3
    )


def test_a_role_is_no_token() -> None:
    assert read(Choices(), VLLM_NGRAM)[1].first_token_at == 2.0


def test_the_usage_we_asked_for_is_taken_out_and_read() -> None:
    out, meter = read(Choices(), VLLM_NGRAM, strip=True)
    assert out == b"".join([*VLLM_NGRAM[:4], DONE])
    assert meter.facts().completion_tokens == 10


def test_vllm_tells_speculation_on_the_usage_event() -> None:
    """Draft model, k = 4: nineteen steps, each with all four drafts accepted but two."""
    told = {
        "mean_acceptance_length": 4.79,
        "draft_acceptance_rate": 0.947,
        "acceptance_histogram": [0, 1, 1, 0, 17],
        "num_spec_steps": 19,
        "num_accepted_draft_tokens": 71,
        "num_draft_tokens": 76,
        "num_spec_tokens": 4,
    }
    last = vllm_usage(20, 91, metrics={"time_to_first_token_ms": 484.0, "speculative_decoding": told})
    out, meter = read(Choices(), [*VLLM_NGRAM[:4], last, DONE], strip=True)
    assert b"metrics" not in out
    facts = meter.facts()
    assert (facts.steps, facts.draft_tokens, facts.accepted_tokens) == (19, 76, 71)
    assert facts.accepted_per_position == (19, 18, 17, 17)


def test_the_older_shape_of_vllm_sits_on_the_choices_and_adds_up() -> None:
    stats = {"num_spec_steps": 5, "num_accepted_tokens": 4, "num_draft_tokens": 10, "acceptance_histogram": [2, 2, 1]}
    choices = [{"index": n, "text": "x", "finish_reason": "stop", "speculative_decoding_stats": stats} for n in (0, 1)]
    body = json.dumps({"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 20}}).encode()
    facts = read(Choices(), [body], JSON)[1].facts()
    assert (facts.steps, facts.draft_tokens, facts.accepted_tokens) == (10, 20, 8)
    assert facts.accepted_per_position == (6, 2)


def test_usage_on_every_event_shows_merged_steps() -> None:
    """With k = 5 a step gives at most six tokens; the event with nine is two steps in one."""
    counts = (0, 1, 4, 13)
    reads = [
        vllm({"content": "x" if count else ""}, usage={"prompt_tokens": 5, "completion_tokens": count})
        for count in counts
    ]
    facts = read(Choices(), reads)[1].facts()
    assert (facts.completion_tokens, facts.events, facts.largest_event_tokens) == (13, 3, 9)


def test_usage_on_events_with_choices_is_never_taken_out() -> None:
    reads = [vllm({"content": "x"}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 1}), DONE]
    out, meter = read(Choices(), reads, strip=True)
    assert out == b"".join(reads)
    assert meter.facts().completion_tokens == 1


TIMINGS = {"cache_n": 86, "prompt_n": 5, "predicted_n": 96, "draft_n": 76, "draft_n_accepted": 75}


def test_llama_cpp_tells_speculation_in_timings() -> None:
    reads = [
        llama({"role": "assistant", "content": None}),
        *[llama({"content": word}) for word in ("a", " b", '"', " c")],
        llama({}, "length", timings=TIMINGS),
        DONE,
    ]
    facts = read(Choices(), reads)[1].facts()
    assert (facts.prompt_tokens, facts.cached_tokens, facts.completion_tokens) == (91, 86, 96)
    assert (facts.steps, facts.draft_tokens, facts.accepted_tokens) == (21, 76, 75)
    assert (facts.events, facts.finish_reason) == (4, "length")


def test_llama_cpp_without_drafts_is_a_measured_zero() -> None:
    plain = {"cache_n": 0, "prompt_n": 5, "predicted_n": 7}
    facts = read(Choices(), [llama({"content": "a"}), llama({}, "stop", timings=plain)])[1].facts()
    assert (facts.steps, facts.draft_tokens, facts.accepted_tokens) == (7, 0, 0)


def test_progress_of_the_prompt_is_no_token() -> None:
    """llama.cpp with ``return_progress`` sends role-only chunks long before the first token."""
    progress = {"cache_n": 0, "prompt_n": 3, "predicted_n": 0}
    reads = [llama({"role": "assistant", "content": None}, timings=progress)] * 3 + [llama({"content": "a"})]
    meter = read(Choices(), reads)[1]
    assert meter.first_token_at == 4.0
    assert meter.facts().prompt_tokens is None


@pytest.mark.parametrize(
    ("where", "stats", "expected"),
    [
        ("sglext", {"spec_tokens_details": {"spec_accept_length": 2.5, "spec_verify_ct": 4}}, (4, None, 6)),
        ("meta_info", {"spec_verify_ct": 4, "spec_accept_token_num": 5, "spec_draft_token_num": 12}, (4, 12, 5)),
    ],
)
def test_sglang_tells_verification_steps(
    where: str, stats: dict[str, object], expected: tuple[int | None, ...]
) -> None:
    body = json.dumps({"text": "x", where: stats}).encode()
    facts = read(Choices(), [body], JSON)[1].facts()
    assert (facts.steps, facts.draft_tokens, facts.accepted_tokens) == expected


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"reasoning_content": "x"},
        {"reasoning": "x"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"function_call": {"name": "f"}},
        {"refusal": "no"},
    ],
)
def test_all_that_is_generated_counts(delta: dict[str, object]) -> None:
    assert read(Choices(), [vllm({"content": ""}), vllm(delta)])[1].first_token_at == 2.0


@pytest.mark.parametrize("delta", [{}, {"role": "assistant"}, {"content": None}, {"content": ""}, {"x_thing": "y"}])
def test_nothing_generated_counts_for_nothing(delta: dict[str, object]) -> None:
    meter = read(Choices(), [vllm(delta)])[1]
    assert (meter.first_token_at, meter.events) == (None, 0)


def test_text_completions_count_by_their_text() -> None:
    reads = [event({"choices": [{"text": text, "index": 0}]}) for text in ("", "a", "b")]
    meter = read(Choices(), reads)[1]
    assert (meter.first_token_at, meter.events) == (2.0, 2)


def test_several_events_in_one_read_are_all_counted() -> None:
    words = ["a", 'say "b"', "c\\", "", "d", "\\\\", "\n"]
    burst = b"".join(llama({"content": word}) for word in words)
    meter = read(Choices(), [llama({"content": "first"}), burst, burst + DONE, burst[:-1], burst[-1:]])[1]
    assert meter.events == 1 + 3 * 6


def test_after_many_unlike_events_the_meter_still_counts_each() -> None:
    reads = [vllm({"content": "x"}, usage={"prompt_tokens": 5, "completion_tokens": n}) for n in range(1, 200)]
    facts = read(Choices(), reads)[1].facts()
    assert (facts.events, facts.completion_tokens, facts.largest_event_tokens) == (199, 199, 1)


# -- errors and odd answers


def test_an_error_inside_a_stream_is_seen() -> None:
    out, meter = read(Choices(), [*VLLM_NGRAM[:2], event({"error": {"message": "cuda gave up", "code": 500}})])
    assert meter.facts().error == "cuda gave up"
    assert b"cuda gave up" in out


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}, "too long"),
        ({"error": "plain text"}, "plain text"),
        ({"object": "error", "message": "flat", "code": 400}, "flat"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"detail": [{"loc": ["body"], "msg": "field required"}]}, "[{'loc': ['body'], 'msg': 'field required'}]"),
        ({"error": {"code": 1}}, "error without a message"),
    ],
)
def test_error_documents_of_every_engine_are_seen(body: dict[str, object], message: str) -> None:
    assert read(Choices(), [json.dumps(body).encode()], JSON)[1].facts().error == message


def test_json_where_a_stream_was_asked_for() -> None:
    body = json.dumps(
        {
            "choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        }
    )
    for content_type in (SSE, JSON, "", "text/plain"):
        out, meter = read(Choices(), [body[:30].encode(), body[30:].encode()], content_type, strip=True)
        assert out == body.encode()
        assert meter.facts() == Facts(prompt_tokens=5, completion_tokens=1, finish_reason="stop")


def test_a_stream_where_json_was_asked_for() -> None:
    for content_type in (JSON, "", "application/octet-stream"):
        assert read(Choices(), VLLM_NGRAM, content_type)[1].facts().completion_tokens == 10


@pytest.mark.parametrize("body", [b"<html>no</html>", b"Internal Server Error", b"", b"\x00\x01\xff"])
def test_neither_json_nor_a_stream(body: bytes) -> None:
    out, meter = read(Choices(), [body], "text/html", strip=True)
    assert (out, meter.facts()) == (body, Facts())


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "many",
        {"prompt_tokens": "5", "completion_tokens": -1},
        {"prompt_tokens": 1.5},
        {"prompt_tokens_details": 3},
    ],
)
def test_odd_usage_is_unknown_and_no_failure(usage: object) -> None:
    body = json.dumps({"choices": [], "usage": usage}).encode()
    assert read(Choices(), [body], JSON)[1].facts() == Facts()
    assert read(Choices(), [b"data: " + body + b"\n\n"])[1].facts() == Facts()


def test_numbers_no_json_has_and_half_characters_are_read_all_the_same() -> None:
    body = (
        b'data: {"choices":[{"delta":{"content":"\\ud83d"},"logprobs":{"x":NaN}}],"usage":{"completion_tokens":3}}\n\n'
    )
    facts = read(Choices(), [body])[1].facts()
    assert (facts.completion_tokens, facts.events) == (3, 1)


def test_a_keep_alive_is_never_held_back() -> None:
    meter = meter_for(Choices(), SSE, "", True)
    assert meter.feed(b": ping\n", 0.0) == b": ping\n"
    assert meter.feed(b": pi", 0.0) == b": pi"
    assert meter.feed(b"ng\n", 0.0) == b"ng\n"
    assert meter.feed(b"\n", 0.0) == b"\n"


def test_only_what_may_be_a_usage_event_is_held_back() -> None:
    meter = meter_for(Choices(), SSE, "", True)
    assert meter.feed(b'data: {"id":"1",', 0.0) == b""
    assert meter.feed(b'"choices":[{"de', 0.0) == b'data: {"id":"1","choices":[{"de'
    assert meter.feed(b'lta":{"content":"x"}}]}\n\n', 0.0) == b'lta":{"content":"x"}}]}\n\n'
    assert meter.feed(b"data: [DO", 0.0) == b"data: [DO"
    assert meter.feed(b"NE]\n\n", 0.0) == b"NE]\n\n"


def test_a_usage_event_without_a_final_line_end_is_taken_out_too() -> None:
    assert read(Choices(), [VLLM_NGRAM[1], VLLM_NGRAM[4].rstrip()], strip=True)[0] == VLLM_NGRAM[1]


def test_a_compressed_stream_is_left_whole_even_when_usage_should_go() -> None:
    assert meter_for(Choices(), SSE, "br", True).feed(b"\x8b\x00", 0.0) == b"\x8b\x00"


# -- responses


def test_responses_tell_usage_in_the_last_event() -> None:
    # long: one stream, whole, as the engine sends it
    usage = {
        "input_tokens": 70,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 79,
    }
    item = {"content_index": 0, "item_id": "msg_1", "logprobs": [], "output_index": 0}
    reads = [
        event({"response": {"status": "in_progress", "usage": None}, "type": "response.created"}, "response.created"),
        *[
            event(
                {**item, "delta": text, "sequence_number": n, "type": "response.output_text.delta"},
                "response.output_text.delta",
            )
            for n, text in enumerate(("one", ' "two"', "", " three", " four"), 8)
        ],
        event(
            {
                "type": "response.completed",
                "response": {
                    "status": "incomplete",
                    "incomplete_details": {"reason": "max_output_tokens"},
                    "usage": usage,
                },
            },
            "response.completed",
        ),
    ]
    out, meter = read(Responses(), reads)
    assert out == b"".join(reads)
    assert meter.first_token_at == 2.0
    assert meter.facts() == Facts(
        prompt_tokens=70,
        cached_tokens=64,
        completion_tokens=9,
        reasoning_tokens=4,
        finish_reason="length",
        events=4,
    )


def test_llama_cpp_puts_timings_beside_the_response() -> None:
    last = {"type": "response.completed", "response": {"status": "completed"}, "timings": TIMINGS}
    facts = read(Responses(), [event(last)])[1].facts()
    assert (facts.accepted_tokens, facts.finish_reason) == (75, "stop")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"type": "error", "message": "flat"}, "flat"),
        ({"type": "error", "error": {"message": "nested"}}, "nested"),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"message": "failed"}}}, "failed"),
        ({"error": {"message": "typeless"}}, "typeless"),
    ],
)
def test_failed_responses_are_seen(told: dict[str, object], message: str) -> None:
    assert read(Responses(), [event(told)])[1].facts().error == message


@pytest.mark.parametrize("kind", ["response.reasoning_text.delta", "response.function_call_arguments.delta"])
def test_reasoning_and_arguments_are_generated_too(kind: str) -> None:
    assert read(Responses(), [event({"type": kind, "delta": "x"})])[1].events == 1


def test_a_whole_response() -> None:
    body = json.dumps({"object": "response", "status": "completed", "usage": {"input_tokens": 3, "output_tokens": 2}})
    assert read(Responses(), [body.encode()], JSON)[1].facts() == Facts(
        prompt_tokens=3, completion_tokens=2, finish_reason="stop"
    )


# -- messages


def test_messages_tell_usage_in_two_parts() -> None:
    start = {"input_tokens": 5, "cache_read_input_tokens": 86, "output_tokens": 0}
    reads = [
        event({"type": "message_start", "message": {"content": [], "usage": start}}, "message_start"),
        event({"type": "ping"}, "ping"),
        event(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            "content_block_start",
        ),
        *[
            event(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
                "content_block_delta",
            )
            for text in ("a", "b", "c")
        ],
        event(
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 32}},
            "message_delta",
        ),
        event({"type": "message_stop"}, "message_stop"),
    ]
    out, meter = read(Messages(), reads)
    assert out == b"".join(reads)
    assert meter.first_token_at == 4.0
    assert meter.facts() == Facts(
        prompt_tokens=91, cached_tokens=86, completion_tokens=32, finish_reason="length", events=3
    )


@pytest.mark.parametrize(
    ("told", "events"),
    [
        ({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}, 1),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}, 1),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ""}}, 0),
        ({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}, 1),
        ({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, 0),
        ({"type": "ping"}, 0),
    ],
)
def test_what_is_generated_in_messages(told: dict[str, object], events: int) -> None:
    assert read(Messages(), [event(told)])[1].events == events


def test_an_overloaded_backend_says_so_in_the_stream() -> None:
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert read(Messages(), [event(told, "error")])[1].facts().error == "Overloaded"


def test_a_whole_message() -> None:
    usage = {"input_tokens": 11, "output_tokens": 8, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 0}
    body = json.dumps({"type": "message", "content": [], "stop_reason": "tool_use", "usage": usage}).encode()
    assert read(Messages(), [body], JSON)[1].facts() == Facts(
        prompt_tokens=13, cached_tokens=0, completion_tokens=8, finish_reason="tool_calls"
    )
