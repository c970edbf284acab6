"""However a legal stream is cut into reads, the client gets the same bytes and the meter the same facts."""

import json
import zlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.meter import meter_for
from proxy.meter import stream as stream_module
from proxy.meter.base import Facts, Meter
from proxy.meter.choices import Choices
from proxy.meter.messages import Messages
from proxy.meter.reader import Reader
from proxy.meter.responses import Responses

SSE = "text/event-stream; charset=utf-8"
SEPARATORS = ((",", ":"), (", ", ": "))
LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r"])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8) | st.sampled_from(
    ['say "hi"', "back\\slash", '\\"', "data: x", '{"choices":[{', "", "naïve ☕ 🍵"]
)
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


def chunk(**members: object) -> dict[str, object]:
    return {"id": "c1", "object": "chat.completion.chunk", **members}


def delta(key: str, text: str) -> dict[str, object]:
    return chunk(choices=[{"index": 0, "delta": {key: text}, "finish_reason": None}])


CHAT_EVENTS = st.one_of(
    st.builds(delta, st.sampled_from(["content", "reasoning_content"]), TEXT),
    st.builds(partial(delta, "content"), TEXT),
    st.just(chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": None}}])),
    st.just(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])),
    st.just(chunk(choices=[], usage=USAGE)),
    st.just(chunk(choices=[], prompt_filter_results=[])),
    st.just({"error": {"message": "out of memory"}}),
)
RESPONSE_EVENTS = st.one_of(
    st.builds(
        lambda text, number: {"delta": text, "sequence_number": number, "type": "response.output_text.delta"},
        TEXT,
        st.integers(0, 99),
    ),
    st.just({"type": "response.created", "response": {"usage": None}}),
    st.just({"type": "response.completed", "response": {"status": "completed", "usage": {"output_tokens": 3}}}),
)
MESSAGE_EVENTS = st.one_of(
    st.builds(lambda text: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}, TEXT),
    st.just({"type": "ping"}),
    st.just({"type": "message_start", "message": {"usage": {"input_tokens": 4, "cache_read_input_tokens": 2}}}),
    st.just({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
)
EVENTS: dict[type[Reader], st.SearchStrategy[Any]] = {
    Choices: CHAT_EVENTS,
    Responses: RESPONSE_EVENTS,
    Messages: MESSAGE_EVENTS,
}


@st.composite
def block(draw: st.DrawFn, data: bytes) -> bytes:
    """One event in any legal dress."""
    eol = draw(LINE_END)
    space = draw(st.sampled_from([b" ", b""]))
    lines = (
        [draw(st.sampled_from([b"event: x", b"id: 1", b"retry: 5", b": note", b"data"]))] if draw(st.booleans()) else []
    )
    cut = data.find(b": ") + 1 if draw(st.integers(0, 5)) == 0 else 0
    lines += [b"data:" + space + data[:cut]] if cut else []
    lines.append(b"data:" + space + data[cut:])
    # CR and LF would be one line end, and the event would not be over.
    return b"".join(line + eol for line in lines) + (eol if eol == b"\r" else draw(LINE_END))


@st.composite
def streams(draw: st.DrawFn, reader: type[Reader]) -> list[bytes]:
    blocks: list[bytes] = [draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\n", b": hello\n\n"]))]
    for event in draw(st.lists(EVENTS[reader], max_size=7)):
        encoded = json.dumps(
            event, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from(SEPARATORS))
        ).encode()
        repeats = draw(st.sampled_from([1, 1, 1, 3]))
        blocks += [draw(block(encoded))] * repeats
        if draw(st.integers(0, 4)) == 0:
            blocks.append(draw(st.sampled_from([b": ping\n", b": ping\r\n\r\n", b"\r\n", b":\n"])))
    if draw(st.booleans()):
        blocks.append(b"data: [DONE]" + draw(st.sampled_from([b"\n\n", b"\n", b"", b"\r\n\r\n"])))
    return blocks


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """``data`` cut at the given places, as reads from a socket."""
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


def passed(meter: Meter, reads: list[bytes]) -> tuple[bytes, Facts]:
    out = b"".join([fed(meter, read, float(number)) for number, read in enumerate(reads)])
    return out + meter.end(float(len(reads))), meter.facts()


def fed(meter: Meter, read: bytes, at: float) -> bytes:
    """What the meter has for the client: just what it took where it said so before."""
    sure = meter.leaves(read)
    out = meter.feed(read, at)
    assert out == read or not sure
    return out


@pytest.mark.parametrize(
    "read",
    [
        b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
        b'data: {"choices":[],"\\u0075sage":{"prompt_tokens":1}}\n\n',
        b'data: {"choices":[],"us',
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[],',
    ],
    ids=["usage", "usage in escapes", "half a key", "half an event"],
)
def test_what_may_be_our_usage_event_waits_to_be_read(read: bytes) -> None:
    meter = meter_for(Choices(), SSE, "", True)
    assert not meter.leaves(read)
    assert meter.feed(read, 1.0) != read
    assert meter_for(Choices(), SSE, "", False).leaves(read)


def test_events_without_usage_need_not_wait() -> None:
    meter = meter_for(Choices(), SSE, "", True)
    assert meter.leaves(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')


CUTS = st.lists(st.integers(0, 2000), max_size=12)


@pytest.mark.parametrize("reader", EVENTS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_cut_gives_the_same_bytes_and_facts(reader: type[Reader], data: st.DataObject) -> None:
    whole = b"".join(data.draw(streams(reader)))
    for strip in (False, True):
        make: Callable[[], Meter] = partial(lambda strip: meter_for(reader(), SSE, "", strip), strip)
        out, facts = passed(make(), [whole])
        assert passed(make(), pieces(whole, data.draw(CUTS))) == (out, facts)
        assert passed(make(), pieces(whole, list(range(len(whole))))) == (out, facts)
        if not strip:
            assert out == whole


def without_usage(piece: bytes) -> bytes:
    """What is left of a usage event: its comment lines. Any other piece is left alone."""
    if not any(json.dumps(USAGE, separators=form).encode() in piece for form in SEPARATORS):
        return piece
    return b"".join(line for line in piece.splitlines(keepends=True) if line.startswith(b":"))


@given(streams(Choices), CUTS)
def test_of_a_stripped_stream_only_usage_events_are_missing(blocks: list[bytes], cuts: list[int]) -> None:
    out, _ = passed(meter_for(Choices(), SSE, "", True), pieces(b"".join(blocks), cuts))
    assert out == b"".join(map(without_usage, blocks))


@given(streams(Choices), CUTS, st.sampled_from(["gzip", "deflate", "bare"]))
def test_a_compressed_stream_is_read_from_a_copy(blocks: list[bytes], cuts: list[int], coding: str) -> None:
    whole = b"".join(blocks)
    squeeze = zlib.compressobj(wbits={"gzip": 31, "deflate": 15, "bare": -15}[coding])
    squeezed = squeeze.compress(whole) + squeeze.flush()
    header = "deflate" if coding == "bare" else coding
    out, facts = passed(meter_for(Choices(), SSE, header, True), pieces(squeezed, cuts))
    assert out == squeezed
    assert facts == passed(meter_for(Choices(), SSE, "", False), [whole])[1]


@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from(["", "gzip", "deflate", "br"]), st.booleans())
def test_garbage_passes_unharmed(reads: list[bytes], coding: str, strip: bool) -> None:
    for reader in EVENTS:
        out, facts = passed(meter_for(reader(), SSE, coding, strip), reads)
        assert out == b"".join(reads)
        assert facts.completion_tokens is None


@pytest.mark.parametrize("cuts", [[], [3], list(range(0, 400, 7))])
def test_an_event_too_large_to_be_read_counts_as_content(monkeypatch: pytest.MonkeyPatch, cuts: list[int]) -> None:
    monkeypatch.setattr(stream_module, "_LARGEST_READ", 100)
    large = b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"a" * 300)
    after = b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}'
    out, facts = passed(meter_for(Choices(), SSE, "", True), pieces(large + after, cuts))
    assert out == large + after
    assert (facts.events, facts.finish_reason) == (2, "stop")
