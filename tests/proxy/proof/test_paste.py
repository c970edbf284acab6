"""What is offered to paste."""

import json
import shlex

import pytest

from proxy.proof.paste import flags, instructions, kubernetes_patch, llmkube_patch, shell


def test_vllm_takes_one_flag_of_json() -> None:
    words = shlex.split(shell(flags("vllm", 5, "ngram")))
    assert words[0] == "--speculative-config"
    assert json.loads(words[1]) == {"method": "ngram", "num_speculative_tokens": 5}


@pytest.mark.parametrize(
    ("method", "flag"),
    [
        (None, "--spec-draft-n-max"),
        ("draft-simple", "--spec-draft-n-max"),
        ("ngram-mod", "--spec-ngram-mod-n-max"),
        ("ngram_simple", "--spec-ngram-simple-size-m"),
        ("ngram-map-k", "--spec-ngram-map-k-size-m"),
    ],
)
def test_llamacpp_names_the_depth_by_the_drafter(method: str | None, flag: str) -> None:
    assert flags("llamacpp", 7, method) == [flag, "7"]


def test_sglang_verifies_one_more_than_it_drafts() -> None:
    assert shell(flags("sglang", 4)) == (
        "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"
    )


def patch_of(command: str) -> object:
    return json.loads(shlex.split(command)[-1])


def test_a_kubernetes_patch_appends_arguments() -> None:
    assert patch_of(kubernetes_patch(["--spec-draft-n-max", "6"])) == [
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--spec-draft-n-max"},
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "6"},
    ]


def test_llmkube_has_a_field_for_llamacpp_drafts_and_arguments_for_the_rest() -> None:
    assert patch_of(llmkube_patch("llamacpp", flags("llamacpp", 6), 6)) == {
        "spec": {"speculativeDecoding": {"nDraftMax": 6}}
    }
    ngram = flags("llamacpp", 6, "ngram-mod")
    assert patch_of(llmkube_patch("llamacpp", ngram, 6)) == {"spec": {"extraArgs": ["--spec-ngram-mod-n-max", "6"]}}


def test_an_unknown_engine_gets_every_known_flag() -> None:
    assert [name for name, _ in instructions("unknown", 3)] == ["vllm", "llamacpp", "sglang"]
