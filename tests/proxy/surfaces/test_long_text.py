"""A long text is left out while the rest of a body is parsed, and nothing else about the request is read differently."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BadRequest
from proxy.surfaces import SURFACES, long_text
from proxy.surfaces.base import Asked
from proxy.surfaces.long_text import LongText

BY_NAME = {surface.name: surface for surface in SURFACES}
PROSE = "It was the best of times, it was the worst of times. "
pieces = st.text(min_size=1, max_size=30) | st.sampled_from(
    [PROSE, "\\", '"', '\\"', "\n", "the long text", '"]}', "é"]
)


units = st.sampled_from([PROSE, "x", "naïve ", "\\", "\n"])
long_texts = st.tuples(pieces, units, st.integers(20_000, 40_000), pieces)
"""Mostly without quotes; the unit is repeated to be so many characters."""


def read(surface: str, body: bytes, longest: int) -> Asked | str:
    """What is read of a body where texts are left out of bodies beyond ``longest``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_text, "LONG", longest)
        try:
            return BY_NAME[surface].read(body, "application/json")
        except BadRequest as error:
            return str(error)


def fields(asked: Asked | str) -> dict[str, object]:
    if isinstance(asked, str):
        return {"refused": asked}
    told = {name: getattr(asked, name) for name in dir(Asked) if name[0] != "_" and name != "text_left_out"}
    return told | {"sample": asked.sample()}


def alike(surface: str, body: bytes) -> None:
    assert fields(read(surface, body, long_text.LONG)) == fields(read(surface, body, len(body)))


places: dict[str, Any] = {
    "chat, a text": ("chat", lambda text: {"messages": [{"role": "user", "content": text}]}),
    "chat, a part": (
        "chat",
        lambda text: {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]},
    ),
    "chat, a picture": (
        "chat",
        lambda text: {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]}]},
    ),
    "chat, a tool": (
        "chat",
        lambda text: {"messages": [], "tools": [{"function": {"name": "f", "description": text}}]},
    ),
    "chat, a call": (
        "chat",
        lambda text: {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": text}}]}]},
    ),
    "chat, no field we know": (
        "chat",
        lambda text: {"messages": [{"role": "user", "content": "hi"}], "metadata": text},
    ),
    "completions": ("completions", lambda text: {"prompt": text}),
    "completions, several": ("completions", lambda text: {"prompt": ["a", text, "b"]}),
    "messages, system": ("messages", lambda text: {"system": text, "messages": [{"role": "user", "content": "hi"}]}),
    "messages, before a result": (
        "messages",
        lambda text: {
            "messages": [{"role": "user", "content": [{"type": "text", "text": text}, {"type": "tool_result"}]}]
        },
    ),
    "chat, between parts": (
        "chat",
        lambda text: {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": part} for part in ("a", text, "the long text")]},
                {"role": "user", "content": "the long text"},
            ]
        },
    ),
    "the model's name": ("chat", lambda text: {"model": text, "messages": [{"role": "user", "content": "hi"}]}),
    "messages, a result": (
        "messages",
        lambda text: {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": text}]}]},
    ),
    "responses": ("responses", lambda text: {"input": text}),
    "responses, an item": ("responses", lambda text: {"input": [{"role": "user", "content": text}]}),
}


@pytest.mark.parametrize("place", places)
@given(long=long_texts, spaces=st.booleans(), ascii_only=st.booleans())
def test_it_is_read_as_if_the_parser_had_seen_it(
    place: str, long: tuple[str, str, int, str], spaces: bool, ascii_only: bool
) -> None:
    surface, body = places[place]
    before, unit, size, after = long
    text = before + unit * (size // len(unit)) + after
    separators = (", ", ": ") if spaces else (",", ":")
    members = {"model": "m", **body(text), "temperature": 0.5, "stream": True}
    alike(surface, json.dumps(members, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"model": "m", "prompt": list(range(20_000)), "max_tokens": 5}).encode(),
        json.dumps({"model": "m", "prompt": "a", "stop": ["b"], "x": " " * 40_000 + '"' * 9}).encode(),
        json.dumps({"model": "m", "prompt": "\\" * 40_001}).encode(),
        json.dumps({"model": "m", "prompt": ("\\" * 33 + '"') * 2_000}).encode(),
        json.dumps({"model": "m", "prompt": "x" * 20_000 + "\\" * 20_000 + '"'}).encode(),
        b'{"model":"m","prompt":' + b" " * 40_000 + b'"a"}',
        b'{"model":"m","prompt"' + b" " * 40_000 + b'"a"}',
        b'{"model":"m","prompt":"a"' + b" " * 40_000 + b"}",
        b'{"model":"m","prompt":"' + b"x" * 40_000,
        b'"' + b"x" * 40_000 + b'"',
        b"x" * 40_000,
        b"\xef\xbb\xbf" + json.dumps({"model": "m", "prompt": "x" * 40_000}).encode(),
        b'{"model":"m","prompt":"' + b"\xff" * 40_000 + b'"}',
        b'{"model":"m","model":"n","prompt":"' + b"x" * 40_000 + b'"}',
    ],
    ids=lambda body: f"{body[:24]!r}…{body[-9:]!r}",
)
def test_where_there_is_no_long_text_the_parser_decides(body: bytes) -> None:
    alike("completions", body)


def test_who_writes_the_stand_in_gets_the_text_once() -> None:
    """It was put back wherever the stand-in stood, which took a second for 1.2 MB, and made an estimate of gigabytes."""
    told = {"role": "user", "content": ["the long text"]}
    body = json.dumps(
        {"messages": [told, {"role": "user", "content": "x" * 90_000}, told]}, separators=(",", ":")
    ).encode()
    alike("chat", body)
    asked = read("chat", body, long_text.LONG)
    assert isinstance(asked, Asked)
    assert asked.prompt_bytes < 91_000


@pytest.mark.parametrize("broken", ["\n", "\\q", "\\u12", "\x00"])
def test_what_is_wrong_inside_is_found_when_it_is_looked_for(broken: str) -> None:
    body = b'{"model":"m","prompt":"%b"}' % (broken + "x" * 90_000).encode()
    assert fields(read("completions", body, long_text.LONG))["prompt_bytes"]
    with pytest.raises(BadRequest):
        long_text.check_long_text(body)


def test_the_choices_of_many_prompts_stay_a_number_that_a_journal_takes() -> None:
    body = json.dumps({"model": "m", "prompt": ["a"] * 4096, "n": 2**53}).encode()
    asked = read("completions", body, long_text.LONG)
    assert isinstance(asked, Asked)
    assert asked.n == 2**53


def looked_at(body: bytes) -> tuple[bytes, LongText | None]:
    return long_text.parse_prompt(body, lambda data: data)


def test_the_parser_is_spared_it() -> None:
    body = json.dumps({"a": 1, "b": "x" * 50_000, "c": 2}).encode()
    seen, left_out = looked_at(body)
    assert left_out is not None
    assert len(seen) < 100
    assert bytes(left_out.of(memoryview(seen))) == body


def test_a_text_full_of_quotes_is_left_to_the_parser() -> None:
    body = json.dumps({"b": 'say "x" ' * 6_000}).encode()
    assert looked_at(body) == (body, None)
