"""The splice changes the few bytes it must and keeps all others."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.splice import members, splice

NAME = "other/model-β"
SPACE = st.sampled_from(["", " ", "\n\t ", "\r\n"])
KEYS = st.sampled_from(["messages", "seed", "temperature", "streams", "mod", "x", "extra_body", "модель"]) | st.text(
    max_size=6
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(['"model":"m"', '{"stream_options":{}}', "\\", '\\"', "}", "]"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.just("model"), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def written(draw: st.DrawFn, pairs: list[tuple[str, Any]]) -> bytes:
    """A JSON object in an unusual hand: any white space, escapes in keys, a byte order mark."""
    parts = []
    for key, value in pairs:
        quoted = json.dumps(key, ensure_ascii=draw(st.booleans()))
        if draw(st.integers(0, 6)) == 0:
            quoted = '"' + "".join(f"\\u{ord(letter):04X}" if ord(letter) < 0x10000 else letter for letter in key) + '"'
        if any(0xD800 <= ord(letter) < 0xE000 for letter in key):
            quoted = json.dumps(key)
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        parts.append(draw(SPACE) + quoted + draw(SPACE) + ":" + draw(SPACE) + text + draw(SPACE))
    start = draw(st.sampled_from(["", "", "\ufeff", " \n"]))
    return (start + "{" + ",".join(parts) + draw(SPACE) + "}" + draw(SPACE)).encode("utf-8", "surrogatepass")


def bodies(*extra: tuple[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[bytes]:
    """Bodies with these members somewhere among others."""
    others = st.lists(st.tuples(KEYS, VALUES), max_size=5)
    named = st.tuples(*(st.tuples(st.just(key), values) for key, values in extra))
    return st.tuples(others, named).flatmap(lambda both: st.permutations([*both[0], *both[1]])).flatmap(written)


def pairs(body: bytes) -> list[tuple[str, Any]]:
    """The members of the outermost object in their order, duplicates included."""
    found: list[tuple[str, Any]] = json.loads(body.decode("utf-8-sig", "surrogatepass"), object_pairs_hook=list)
    return found


OPTIONS: st.SearchStrategy[dict[str, Any] | None] = st.one_of(
    st.none(),
    st.just({}),
    st.just({"include_usage": False}),
    st.just({"include_usage": None, "other": [1]}),
    st.just({"other": {"include_usage": False}}),
)


@given(bodies(("model", st.just("m"))))
def test_nothing_to_change_changes_nothing(body: bytes) -> None:
    assert splice(body, None, False) is body


@given(bodies(("model", st.text(max_size=5) | st.just("m"))), st.booleans())
def test_only_the_model_is_replaced(body: bytes, told: bool) -> None:
    old = dict(pairs(body))["model"] if told else None
    new = splice(body, NAME, False, old)
    assert pairs(new) == [(key, NAME if key == "model" else value) for key, value in pairs(body)]
    assert surroundings(body) == surroundings(new)


def surroundings(body: bytes) -> list[bytes]:
    """All bytes that are not the value of a model."""
    places = [(member.start, member.end) for member in members(body) if member.key == "model"]
    starts, ends = [0, *(end for _, end in places)], [*(start for start, _ in places), len(body)]
    return [body[start:end] for start, end in zip(starts, ends, strict=True)]


@given(bodies(("model", st.just("m")), ("stream", st.just(True))), st.booleans())
def test_usage_is_asked_for_where_there_are_no_options(body: bytes, walked: bool) -> None:
    new = splice(body, None, True, "m", walked)
    assert pairs(new) == [("stream_options", [("include_usage", True)]), *pairs(body)]
    added = b'"stream_options":{"include_usage":true},'
    assert new.replace(added, b"", 1) == body


@given(bodies(("stream_options", OPTIONS), ("stream", st.just(True)), ("model", st.just("m"))))
def test_options_of_the_client_are_merged(body: bytes) -> None:
    new, old = json.loads(splice(body, NAME, True, "m").decode("utf-8-sig", "surrogatepass")), dict(pairs(body))
    own = json.loads(body.decode("utf-8-sig", "surrogatepass"))["stream_options"] or {}
    assert new["stream_options"] == {**own, "include_usage": True}
    assert new["model"] == NAME
    assert set(new) == set(old)


def test_all_of_duplicate_models_are_replaced_so_that_no_parser_sees_the_old_one() -> None:
    body = b'{"model":"a","x":{"model":"a"},"model" : "a long one","mod\\u0065l":"a"}'
    assert splice(body, "z", False) == b'{"model":"z","x":{"model":"a"},"model" : "z","mod\\u0065l":"z"}'


def test_a_duplicate_of_another_length_does_not_shift_the_walk() -> None:
    body = b'{"seed":12345678901234567,"a":[1,{"b":"}"}],"seed":1,"a":[],"model":"m"}'
    assert splice(body, "z", False) == body.replace(b'"m"', b'"z"')


def test_numbers_that_python_would_change_stay() -> None:
    body = b'{"seed":12345678901234567890123,"temperature":1.0,"min_p":1E-7,"x":NaN,"model":"m"}'
    assert splice(body, "z", True) == b'{"stream_options":{"include_usage":true},' + body[1:].replace(b'"m"', b'"z"')


@pytest.mark.parametrize("options", [b'"yes"', b"3", b"[]", b'{"continuous_usage_stats":true}'])
def test_options_that_cannot_be_merged_are_left_to_the_backend(options: bytes) -> None:
    body = b'{"stream":true,"stream_options":%b}' % options
    assert splice(body, None, True) == body


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a"', b'{"a":}', b'{"a":[}', b'{"a":1 "b":2}', b'{"a":"x'])
def test_what_is_no_object_is_left_to_the_backend(body: bytes) -> None:
    assert splice(body, "z", True) == body


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail(body: bytes) -> None:
    splice(body, "z", True)


def test_an_empty_object_gets_no_stray_comma() -> None:
    assert splice(b"{ }", None, True) == b'{"stream_options":{"include_usage":true} }'
