"""The table of surfaces: every path once, with and without ``/v1``, and what they all have in common."""

import json
from collections import Counter

import pytest

from proxy.errors import BadRequest
from proxy.meter import meter_for
from proxy.surfaces import SURFACES, extra
from proxy.surfaces.base import Asked, Surface

JSON = "application/json"
GENERATING = {"chat", "completions", "responses", "messages"}
named = pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)


def test_every_path_and_name_is_there_once() -> None:
    assert set(Counter(path for surface in SURFACES for path in surface.paths).values()) == {1}
    assert set(Counter(surface.name for surface in SURFACES).values()) == {1}


@named
def test_paths_come_with_and_without_v1(surface: Surface) -> None:
    bare = {path.removeprefix("/v1") for path in surface.paths}
    assert bare | {"/v1" + path for path in bare if not path.startswith("/v2")} == set(surface.paths)
    assert not any(path.endswith("/") for path in surface.paths)


@named
def test_only_generating_surfaces_are_routed_and_metered(surface: Surface) -> None:
    assert surface.routed == (surface.name in GENERATING)
    assert (surface.reader is not None) == surface.routed
    if surface.reader is not None:
        meter = meter_for(surface.reader(), JSON, "", False)
        assert meter.feed(b"\x00\xff", 1.0) == b"\x00\xff"
        assert meter.end(2.0) == b""


@named
def test_every_surface_knows_the_model_and_can_rename_it(surface: Surface) -> None:
    body = b'{ "input":1.0,"model" : "m" }'
    asked = surface.read(body, JSON)
    assert asked.model == "m"
    assert surface.splice(body, asked, None, False) is body
    assert surface.splice(body, asked, "n", False) == b'{ "input":1.0,"model" : "n" }'


@named
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "empty"),
        (b"{", "not valid JSON"),
        (b"not json", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b"NaN", "must be a JSON object"),
        (b'"hi"', "must be a JSON object"),
        (b'{"model":"caf\xe9"}', "not valid UTF-8"),
        (b'{"x":' + b"[" * 30000 + b"]" * 30000 + b"}", "nested too deeply"),
        (b'{"model":7}', "must be a string"),
        (b'{"model":["m"]}', "must be a string"),
        (b'{"model":"a","model":"b"}', "more than one 'model'"),
        (b'{"stream":true,"x":1,"stream":false}', "more than one 'stream'"),
    ],
)
def test_what_no_backend_could_take_is_refused(surface: Surface, body: bytes, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        surface.read(body, JSON)


@named
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"model": None},
        {"messages": "hi", "input": 3, "prompt": {}, "system": 7, "tools": "x", "stream_options": 1},
        {"messages": [None, 3, [], {"role": 5, "content": {"a": 1}, "tool_calls": 2}]},
        {"messages": [{"role": ["user"], "content": [None, 1, {"type": 3, "text": 4}]}], "tools": [1, {"function": 2}]},
        {"input": [None, 1], "prompt": [None, "a", 3], "text": 1, "reasoning": [], "thinking": 0},
        {"max_tokens": "16", "max_completion_tokens": -1, "n": "2", "temperature": "hot", "stream": {"a": 1}},
        {"stop": 0, "logit_bias": [], "response_format": "json", "structured_outputs": 1, "reasoning_effort": 9},
        {"metadata": {"model": "x", "stream": True}, "seed": 12345678901234567890123},
    ],
)
def test_odd_types_are_the_backends_business(surface: Surface, members: dict[str, object]) -> None:
    body = json.dumps({"model": "m", **members}).encode()
    assert surface.read(body, JSON).model == members.get("model", "m")


@named
@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"model":"m"}',
        b' \r\n\t{"model":"m"}\n',
        b'{"model":"m","temperature":NaN,"top_p":Infinity,"min_p":1e999}',
        b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}],"prompt":"\\ud83d","input":"\\ud83d"}',
        b'{"mod\\u0065l":"m"}',
    ],
)
def test_what_python_backends_take_is_taken(surface: Surface, body: bytes) -> None:
    assert surface.read(body, JSON).model == "m"


def test_failures_are_shown_in_the_streams_own_dialect() -> None:
    for surface in SURFACES:
        shown = surface.failure_event("it broke", "backend_failed")
        assert shown.startswith(b"\n\n")
        assert shown.endswith(b"\n\n")
        *names, data = shown.strip().split(b"\n")
        told = json.loads(data.removeprefix(b"data: "))
        assert "it broke" in json.dumps(told)
        if surface.name == "responses":
            assert names == [b"event: error"]
            assert told["type"] == "error"
        elif surface.dialect == "anthropic":
            assert names == [b"event: error"]
            assert told == {"type": "error", "error": {"type": "api_error", "message": "it broke"}}
        else:
            assert names == []
            assert told["error"] == {
                "message": "it broke",
                "type": "server_error",
                "param": None,
                "code": "backend_failed",
            }


def test_anthropics_clients_can_tell_overload() -> None:
    messages = next(surface for surface in SURFACES if surface.name == "messages")
    assert b'"overloaded_error"' in messages.failure_event("full", "no_backend")


def test_a_configured_path_is_passed_on_whatever_it_carries() -> None:
    surface = extra("/v1/odd")
    assert (surface.paths, surface.routed) == (("/v1/odd",), False)
    assert surface.read(b'{"model":"m"}', JSON).model == "m"
    for body in (b"", b"\x00", b"[1]", b'{"model":1}'):
        assert surface.read(body, "application/octet-stream").model is None
        assert surface.splice(body, Asked(), "n", True) == body
    assert surface.read(b"x", "multipart/form-data").model is None
