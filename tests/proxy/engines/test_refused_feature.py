"""Which refusals are the lane's fault, and which are the client's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engines import ENGINES

_RECORDED = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."


def _openai(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}).encode()


def test_of_the_two_features_vllm_names_the_one_the_request_used_is_meant() -> None:
    vllm = ENGINES["vllm"]
    assert vllm.refused_feature(400, _openai(_RECORDED), ("logit_bias", "tools")) == "logit_bias"
    assert vllm.refused_feature(400, _openai(_RECORDED), ("min_p",)) == "min_p"
    assert vllm.refused_feature(400, _openai(_RECORDED)) == "min_p"


@pytest.mark.parametrize(
    ("message", "asked", "feature"),
    [
        ("Structured outputs are not supported with speculative decoding", ("json_schema",), "json_schema"),
        ("guided decoding cannot be used together with spec_decode", (), "grammar"),
        ("Speculative decoding does not support logprobs > 0", (), "logprobs"),
        ("Speculative decoding is incompatible with beam_search", (), "n"),
        ("mirostat is unsupported in combination with a draft model", (), "other"),
    ],
)
def test_kin_of_that_refusal_are_understood(message: str, asked: tuple[str, ...], feature: str) -> None:
    assert ENGINES["vllm"].refused_feature(400, _openai(message), asked) == feature


@pytest.mark.parametrize(
    "wrap", [lambda m: {"message": m}, lambda m: {"detail": m}, lambda m: {"error": m}, lambda m: m]
)
def test_the_message_is_found_in_every_envelope_engines_use(wrap: object) -> None:
    assert callable(wrap)
    assert ENGINES["unknown"].refused_feature(422, json.dumps(wrap(_RECORDED)).encode()) == "min_p"


def test_an_answer_that_went_well_refuses_nothing() -> None:
    assert ENGINES["vllm"].refused_feature(200, _openai(_RECORDED)) is None


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens=100000 cannot be greater than max_model_len=2048.",
        "temperature must be non-negative, got -3.0.",
        "This model does not support images.",
        "min_p must be in [0, 1], got 3.0.",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ],
)
def test_the_clients_own_mistakes_are_not_the_lanes(message: str) -> None:
    assert ENGINES["vllm"].refused_feature(400, _openai(message), ("min_p", "tools")) is None


def test_words_of_the_prompt_echoed_beside_the_message_do_not_count() -> None:
    body = json.dumps({"error": {"message": "bad temperature", "input": _RECORDED, "code": 400}}).encode()
    assert ENGINES["vllm"].refused_feature(400, body) is None


@given(
    st.sampled_from(sorted(ENGINES)), st.integers(0, 999), st.binary() | st.text().map(lambda t: json.dumps(t).encode())
)
def test_no_body_makes_it_fail(name: str, status: int, body: bytes) -> None:
    assert ENGINES[name].refused_feature(status, body) in {None, "other"}


def test_deeply_nested_json_is_no_message() -> None:
    assert ENGINES["vllm"].refused_feature(400, b"[" * 60_000) is None
