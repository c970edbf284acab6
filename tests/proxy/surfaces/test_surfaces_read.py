"""What the generating surfaces understand of a request."""

import json
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BadRequest
from proxy.surfaces import SURFACES
from proxy.surfaces.base import Asked

BY_NAME = {surface.name: surface for surface in SURFACES}
CODE = "def add(a, b):\n    return a + b\n"


def ask(surface: str, **members: Any) -> Asked:
    return BY_NAME[surface].read(json.dumps({"model": "m", **members}).encode(), "application/json")


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def fields(asked: Asked) -> dict[str, object]:
    return {name: getattr(asked, name) for name in dir(Asked) if name[0] != "_"}


def chat(*messages: dict[str, Any], **members: Any) -> Asked:
    return ask("chat", messages=list(messages), **members)


# -- chat


def test_a_plain_chat() -> None:
    asked = chat(
        {"role": "system", "content": "be brief"},
        user("hello"),
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=16,
        temperature=0,
        n=2,
    )
    assert fields(asked) | {"system": 0, "fingerprint": 0, "prefixes": (), "sample": str} == fields(
        Asked(
            model="m",
            stream=True,
            prompt_bytes=len("be brief") + len("hello"),
            cap=16,
            n=2,
            temperature=0.0,
            features=("n",),
            wants_usage=True,
            has_stream_options=True,
        )
    )


def test_text_counts_and_dressing_does_not() -> None:
    parts = [{"type": "text", "text": "abc"}, {"type": "text", "text": "defg", "cache_control": {"type": "ephemeral"}}]
    assert chat(user(parts)).prompt_bytes == 7
    assert chat(user(None)).prompt_bytes == 0


def test_images_count_as_media() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    asked = chat(user([{"type": "text", "text": "what?"}, image, image]))
    assert (asked.prompt_bytes, asked.media) == (5, 2)


def test_the_newer_cap_wins() -> None:
    assert chat(user("x"), max_tokens=5, max_completion_tokens=9).cap == 9


@pytest.mark.parametrize(
    ("cap", "known"),
    [(7, 7), (7.0, 7), (0, 0), (-1, None), ("7", None), (7.5, None), (True, None), (10**400, None), (1e300, None)],
)
def test_odd_caps_are_unknown(cap: object, known: int | None) -> None:
    assert chat(user("x"), max_tokens=cap).cap == known


@pytest.mark.parametrize(
    ("members", "features"),
    [
        ({}, ()),
        ({"min_p": 0, "logit_bias": {}, "n": 1, "logprobs": False, "stop": None, "tools": [], "min_tokens": 0}, ()),
        ({"min_p": 0.05}, ("min_p",)),
        ({"logit_bias": {"5": -100}}, ("logit_bias",)),
        ({"n": 3}, ("n",)),
        ({"best_of": 2}, ("n",)),
        ({"logprobs": True}, ("logprobs",)),
        ({"prompt_logprobs": 0}, ("prompt_logprobs",)),
        ({"stop": ["\n"]}, ("stop",)),
        ({"prediction": {"type": "content", "content": "x"}}, ("prediction",)),
        ({"use_beam_search": True}, ("beam_search",)),
        ({"ignore_eos": True, "min_tokens": 5}, ("ignore_eos", "min_tokens")),
        ({"response_format": {"type": "text"}}, ()),
        ({"response_format": {"type": "json_object"}}, ("json_object",)),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, ("json_schema",)),
        ({"response_format": {"type": "structural_tag"}}, ("grammar",)),
        ({"guided_json": {}}, ("json_schema",)),
        ({"structured_outputs": {"json": {}}}, ("json_schema",)),
        ({"structured_outputs": {"regex": "a+"}}, ("grammar",)),
        ({"structured_outputs": {}}, ()),
        ({"guided_choice": ["a"]}, ("grammar",)),
        ({"grammar": "root ::= x"}, ("grammar",)),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, ("tools",)),
        ({"tools": [{}], "tool_choice": "auto"}, ("tools",)),
        ({"tools": [{}], "tool_choice": "required"}, ("tool_choice", "tools")),
        ({"tools": [{}], "tool_choice": {"type": "function", "function": {"name": "f"}}}, ("tool_choice", "tools")),
        ({"reasoning_effort": "high"}, ("reasoning:high",)),
        ({"reasoning": {"effort": "low"}}, ("reasoning:low",)),
        ({"reasoning_effort": "a,b\n" * 50}, ()),
        ({"chat_template_kwargs": {"enable_thinking": False}}, ("reasoning:off",)),
    ],
)
def test_features_of_a_chat(members: dict[str, Any], features: tuple[str, ...]) -> None:
    assert chat(user("x"), **members).features == features


@pytest.mark.parametrize(
    ("role", "features"),
    [("user", ()), ("tool", ("last:tool",)), ("function", ("last:tool",)), ("assistant", ("last:assistant",))],
)
def test_who_spoke_last(role: str, features: tuple[str, ...]) -> None:
    assert chat(user("x"), {"role": role, "content": "y"}).features == features


@pytest.mark.parametrize(
    ("content", "members", "kind"),
    [
        ("Write a poem.", {}, "text"),
        ("please fix the import of goods", {}, "text"),
        ("Extract.", {"response_format": {"type": "json_object"}}, "json"),
        (f"Explain:\n```\n{CODE}```", {}, "code"),
        (f"Rename add to plus:\n```\n{CODE}```", {}, "code-edit"),
        ("Reply so:\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n", {}, "code-edit"),
        ("Apply:\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n", {}, "code-edit"),
        ("What is the weather?", {"tools": [{"function": {"name": "weather"}}]}, "tools"),
        ("Summarise: " + "word " * 8000, {}, "long-input"),
    ],
)
def test_the_kind_of_content(content: str, members: dict[str, Any], kind: str) -> None:
    assert chat(user(content), **members).content == kind


# -- fingerprints


SYSTEM = {"role": "system", "content": "You are terse."}


def test_a_next_turn_begins_with_the_last_one() -> None:
    first = chat(SYSTEM, user("one"))
    answer = {"role": "assistant", "content": "two"}
    second = chat(SYSTEM, user("one"), answer, user("three"), temperature=1)
    assert second.prefixes[: len(first.prefixes)] == first.prefixes
    assert first.prefixes[-1] == (first.fingerprint, first.prompt_bytes)
    assert [size for _, size in second.prefixes] == [14, 17, 20, 25]


def test_fingerprints_are_the_same_in_every_process() -> None:
    assert chat(user("hello")).fingerprint == chat(user("hello"), seed=1).fingerprint == 4140911663513605


def test_what_differs_has_another_fingerprint() -> None:
    prompts = [
        chat(user("a")),
        chat(user("b")),
        chat({"role": "assistant", "content": "a"}),
        chat(user("a"), user("a")),
        chat(user("a"), tools=[{"function": {"name": "f"}}]),
        chat(user([{"type": "text", "text": "a"}])),
        chat({"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}),
    ]
    assert len({asked.fingerprint for asked in prompts}) == len(prompts)


def test_the_system_prompt_and_tools_have_a_fingerprint_of_their_own() -> None:
    assert chat(user("a")).system == 0
    assert chat(SYSTEM, user("a")).system == chat(SYSTEM, user("b")).system != 0
    tools = [{"function": {"name": "f"}}]
    assert chat(user("a"), tools=tools).system not in (0, chat(SYSTEM, user("a"), tools=tools).system)


def test_large_texts_that_differ_at_either_end_or_in_length_differ() -> None:
    body = "x" * 300_000
    prompts = [chat(user(text)).fingerprint for text in (body, "y" + body[1:], body[1:] + "y", body[1:])]
    assert len(set(prompts)) == 4


@pytest.mark.parametrize("size", [33_000, 40_000, 100_000, 999_999])
@pytest.mark.parametrize("at", [0, 100, 8_000, -1, -100, -2_000, -8_000])
def test_questions_of_one_length_about_one_long_document_differ(size: int, at: int) -> None:
    """They stand before or behind it."""
    document = "x" * size
    other = document[: at % size] + "y" + document[at % size + 1 :]
    assert chat(user(other)).fingerprint != chat(user(document)).fingerprint


def test_a_change_of_a_few_kilobytes_inside_a_long_document_is_noticed() -> None:
    document = "x" * 100_000
    for at in range(0, 94_000, 500):
        changed = document[:at] + "y" * 6_000 + document[at + 6_000 :]
        assert chat(user(changed)).fingerprint != chat(user(document)).fingerprint


def test_long_conversations_keep_few_borders() -> None:
    asked = chat(*[user(str(number)) for number in range(100)])
    assert len(asked.prefixes) == 16
    sizes = [size for _, size in asked.prefixes]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1
    assert asked.prefixes[-1] == (asked.fingerprint, asked.prompt_bytes)


def test_the_sample_is_the_whole_short_text_or_nothing() -> None:
    assert chat(user('naïve "☕"\n'), user([{"type": "text", "text": "x"}])).sample() == 'naïve "☕"\n\nx'
    assert chat(user("x" * 20_000)).sample() == ""


@pytest.mark.parametrize("size", [20, 20_000])
def test_what_was_read_does_not_hold_on_to_the_body(size: int) -> None:
    """``Asked`` lives as long as the answer streams."""
    body = json.dumps({"messages": [user("x" * size)], "unknown": "y" * 100_000}).encode()
    before = sys.getrefcount(body)
    asked = BY_NAME["chat"].read(body, "")
    assert asked.prompt_bytes == size
    assert sys.getrefcount(body) == before


# -- usage


@pytest.mark.parametrize(
    ("options", "wants"),
    [(None, False), ({}, False), ({"include_usage": True}, True), ({"include_usage": False}, False), ([], False)],
)
def test_who_asked_for_usage(options: object, wants: bool) -> None:
    for surface in ("chat", "completions"):
        asked = ask(surface, stream=True, stream_options=options)
        assert (asked.wants_usage, asked.has_stream_options) == (wants, True)


def test_usage_is_asked_for_only_in_streams() -> None:
    for surface in ("chat", "completions"):
        for stream in (False, None):
            body = json.dumps({"model": "m", "stream": stream}).encode()
            asked = BY_NAME[surface].read(body, "application/json")
            assert BY_NAME[surface].splice(body, asked, None, True) == body


@pytest.mark.parametrize("surface", ["responses", "messages", "count_tokens", "embeddings"])
def test_usage_is_never_asked_for_where_it_is_told_anyway(surface: str) -> None:
    body = b'{"model":"m","stream":true}'
    assert BY_NAME[surface].splice(body, BY_NAME[surface].read(body, ""), None, True) == body


@pytest.mark.parametrize(
    ("value", "truth"), [(True, True), (1, True), ("true", True), (False, False), ("no", False), (None, False)]
)
def test_stream_is_true_where_engines_take_it_so(value: object, truth: bool) -> None:
    assert chat(user("x"), stream=value).stream == truth


# -- completions


def test_a_text_prompt() -> None:
    asked = ask("completions", prompt="Once upon", suffix="end", echo=True, max_tokens=4)
    assert (asked.prompt_bytes, asked.prompt_tokens, asked.cap) == (9, None, 4)
    assert asked.features == ("echo", "suffix")


def test_token_ids_are_counted_exactly() -> None:
    assert ask("completions", prompt=[1, 2, 3]).prompt_tokens == 3
    several = ask("completions", prompt=[[1, 2], [3, 4, 5]], n=2)
    assert (several.prompt_tokens, several.n) == (5, 4)


def test_a_list_of_texts_asks_for_several_answers() -> None:
    asked = ask("completions", prompt=["ab", "cde"])
    assert (asked.prompt_bytes, asked.prompt_tokens, asked.n, asked.sample()) == (5, None, 2, "ab\ncde")


def test_logprobs_zero_is_a_wish() -> None:
    assert ask("completions", prompt="x", logprobs=0).features == ("logprobs",)


# -- responses


def test_a_response_with_items() -> None:
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "x"}],
        },
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
    ]
    asked = ask(
        "responses",
        input=items,
        instructions="be brief",
        max_output_tokens=7,
        reasoning={"effort": "medium"},
        text={"format": {"type": "json_schema"}},
        tools=[{"type": "function", "name": "f"}],
        tool_choice="required",
    )
    assert asked.features == ("json_schema", "last:tool", "reasoning:medium", "tool_choice", "tools")
    assert (asked.media, asked.cap, asked.content) == (1, 7, "json")
    assert asked.prompt_bytes == len('[{"type": "function", "name": "f"}]') + len("be brieflook{}done")


def test_a_response_with_a_text() -> None:
    asked = ask("responses", input="hello", previous_response_id="r1", top_logprobs=2)
    assert (asked.prompt_bytes, asked.sample()) == (5, "hello")
    assert asked.features == ("logprobs", "previous_response")


# -- messages


def test_messages_of_anthropics_clients() -> None:
    asked = ask(
        "messages",
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        messages=[
            user("go"),
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "input": {}}],
            },
            user(
                [
                    {"type": "tool_result", "content": [{"type": "text", "text": "done"}]},
                    {"type": "image", "source": {}},
                ]
            ),
        ],
        max_tokens=99,
        stop_sequences=["\n"],
        thinking={"type": "enabled", "budget_tokens": 9},
        tools=[{"name": "f", "input_schema": {}}],
        tool_choice={"type": "any"},
        stream=True,
    )
    assert asked.features == ("last:tool", "reasoning:on", "stop", "tool_choice", "tools")
    assert (asked.cap, asked.media, asked.stream, asked.wants_usage) == (99, 1, True, True)
    assert asked.sample() == "be brief\ngo\nhm\ndone"
    assert asked.system != 0


# -- anything


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "prompt",
        "input",
        "system",
        "instructions",
        "tools",
        "tool_choice",
        "stream",
        "stream_options",
        "max_tokens",
        "n",
        "stop",
        "response_format",
        "text",
        "reasoning",
        "thinking",
        "logit_bias",
        "temperature",
        "suffix",
        "chat_template_kwargs",
    ]
)
ROLES = st.sampled_from(["user", "system", "tool", None, 4])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": JSON_VALUES}) | JSON_VALUES, max_size=4)


@given(st.dictionaries(FIELDS, JSON_VALUES | MESSAGES, max_size=6), st.booleans())
def test_any_object_is_read_and_goes_on_unchanged(members: dict[str, Any], ascii_only: bool) -> None:
    body = json.dumps({"model": "m", **members}, ensure_ascii=ascii_only).encode("utf-8", "replace")
    for name in ("chat", "completions", "responses", "messages", "tokenize"):
        surface = BY_NAME[name]
        asked = surface.read(body, "application/json")
        assert asked.model == "m"
        assert asked.prompt_bytes >= 0
        assert surface.splice(body, asked, None, False) is body


@given(st.binary(max_size=50))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for surface in SURFACES:
        with suppress(BadRequest):
            assert surface.read(body, "application/json").prompt_bytes >= 0
