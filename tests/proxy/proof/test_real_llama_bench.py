"""The trap and the truth on real llama.cpp engines: the same prompt again and again, and different ones."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import app
from proxy.llama import Tuning, missing, start

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("real-llamacpp"),
    pytest.mark.skipif(missing() is not None, reason="the demo extra is not installed"),
]


@pytest.fixture(scope="module")
def arms() -> Iterator[list[str]]:
    with start(Tuning(kind="plain")) as plain, start(Tuning(kind="ngram-mod")) as speculative:
        yield ["--plain", plain.url, "--speculative", speculative.url]


def bench(words: list[str]) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["bench", *words, "--json"])
    told: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, told


def tokens_per_step(told: dict[str, Any]) -> float:
    return float(told["cells"][0]["figures"]["speculative"]["tokens_per_step"]["value"])


def test_different_sampled_prompts_give_an_ngram_drafter_little(arms: list[str]) -> None:
    words = ["--kinds", "chat,writing,translation", "--per-kind", "3", "--temperature", "0.8", "--max-tokens", "24"]
    status, told = bench([*arms, *words])
    assert status == 0
    assert tokens_per_step(told) < 1.5
    assert not {"repeated-prompts", "shared-text"} & {finding["name"] for finding in told["findings"]}


def test_the_same_prompt_again_is_refused_and_else_shows_a_gain_that_is_marked(arms: list[str], tmp_path: Path) -> None:
    path = tmp_path / "repeated.jsonl"
    path.write_text('{"prompt": "Say the numbers from one to fifty in words: one, two, three, four,"}\n' * 9)
    words = [*arms, "--prompts", str(path), "--temperature", "0", "--max-tokens", "32"]
    status, told = bench(words)
    assert (status, told["refused"]) == (1, True)
    status, told = bench([*words, "--allow-repeats"])
    severities = {finding["name"]: finding["severity"] for finding in told["findings"]}
    assert status == 0
    assert severities["repeated-prompts"] == severities["repeated-outputs"] == "marked"
    assert severities["engine-memory"] == "marked"
    assert tokens_per_step(told) > 2
