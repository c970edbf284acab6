"""Properties: however an answer or a request is cut into reads, the same bytes come out on the other side."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted.backend import Script, ScriptedBackend, Visit
from tests.scripted.client import CHAT_STREAM, connected, post
from tests.scripted.rig import Rig, config_for, running
from tests.scripted.scripts import ANSWER, CHUNKED, DONE, LAST_CHUNK, SSE, answer, chunk, head

EXAMPLES = 60
TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """One legal event: data, comments, fields, JSON or not, with any line ends."""
    end = draw(ENDS)
    kind = draw(st.sampled_from(["chat", "text", "comment", "fields", "lines", "usage"]))
    content = draw(TEXT)
    chat = json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": content}}]}, ensure_ascii=False)
    lines = {
        "chat": [f"data: {chat}"],
        "text": [f"data:{content}"],
        "comment": [f": {content}"],
        "fields": ["event: x", "id: 1", "retry: 5", f"data: {chat}"],
        "lines": ["data: {", f"data: {content}", "data: }"],
        "usage": ['data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}'],
    }[kind]
    return "".join(line + end for line in [*lines, ""]).encode()


@st.composite
def cut(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """The same bytes in pieces."""
    at = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    borders = [0, *at, len(whole)]
    return [whole[a:b] for a, b in pairwise(borders) if a < b]


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream, and the socket writes in which its chunked form arrives: event, chunk and read borders are independent."""
    text = b"".join(draw(st.lists(events(), max_size=6))) + draw(st.sampled_from([DONE, b"", b"data: [DONE]"]))
    chunks = b"".join(chunk(piece) for piece in draw(cut(text)))
    return text, draw(cut(head(SSE + CHUNKED) + chunks + LAST_CHUNK))


class Played:
    """A backend whose next answer the property sets."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    async def __call__(self, visit: Visit) -> None:
        for piece in self.writes:
            await visit.send(piece)
            await asyncio.sleep(0)


Check = Callable[[Rig, ScriptedBackend], Awaitable[None]]


async def hold(form: str, script: Script, engine: str | None, prove: Callable[[Callable[[Check], None]], None]) -> None:
    """One gateway for all examples; hypothesis runs in a thread, each example on the loop."""
    loop, backend = asyncio.get_running_loop(), ScriptedBackend(script)
    settings_of = {"engine": engine} if engine else {}
    async with backend.listening(), running(config_for({"plain": backend.url}, plain=settings_of), form) as rig:

        def example(check: Check) -> None:
            asyncio.run_coroutine_threadsafe(_awaited(check(rig, backend)), loop).result()

        await asyncio.to_thread(prove, example)
        await rig.at_rest()
        assert rig.faults == []


async def _awaited(work: Awaitable[None]) -> None:
    await work


@pytest.mark.parametrize("engine", [None, "vllm"], ids=["as it is", "usage taken out"])
async def test_any_cut_of_any_stream_gives_the_same_bytes(form: str, engine: str | None) -> None:
    played = Played()

    def prove(example: Callable[[Check], None]) -> None:
        @settings(max_examples=EXAMPLES)
        @given(answers())
        def holds(drawn: tuple[bytes, list[bytes]]) -> None:
            text, played.writes = drawn

            async def check(rig: Rig, _: ScriptedBackend) -> None:
                async with connected(rig.port) as client:
                    got = await client.ask(post(CHAT_STREAM))
                assert (got.status, got.body, got.complete) == (200, text, True)

            example(check)

        holds()

    await hold(form, played, engine, prove)


JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "messages",
        "stream",
        "n",
        "max_tokens",
        "temperature",
        "tools",
        "stop",
        "seed",
        "user",
        "response_format",
        "extra_body",
    ]
) | st.text(max_size=6)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A JSON object in any dressing: separators, escapes, order, unknown fields."""
    fields = draw(st.dictionaries(KEYS, JSONS, max_size=5))
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " :\n")]))
    told = {"model": "m", **fields, "model ": 1}
    body = json.dumps(told, separators=separators, ensure_ascii=draw(st.booleans()))
    try:
        return body.encode()
    except UnicodeEncodeError:  # lone surrogates can only be written as escapes
        return json.dumps(told, separators=separators).encode()


async def test_any_json_body_is_forwarded_byte_for_byte(form: str) -> None:
    """Nothing has to change on a backend that is not asked for usage."""

    def prove(example: Callable[[Check], None]) -> None:
        @settings(max_examples=EXAMPLES)
        @given(bodies(), st.data())
        def holds(body: bytes, data: st.DataObject) -> None:
            pieces = data.draw(cut(post(body)))

            async def check(rig: Rig, backend: ScriptedBackend) -> None:
                async with connected(rig.port) as client:
                    for piece in pieces:
                        await client.send(piece)
                        await asyncio.sleep(0)
                    got = await client.answer()
                assert (got.status, got.body) == (200, ANSWER)
                assert backend.requests[-1].body == body

            example(check)

        holds()

    await hold(form, answer(), None, prove)
