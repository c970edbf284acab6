"""``draftlane bench`` against simulated engines on real sockets."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

from proxy.cli import app
from proxy.engines import ENGINES
from proxy.proof.options import headers_of, loads_of, object_of
from proxy.proof.prompts import built_in
from proxy.simulated.character import Character

PLAIN = Character(step_ms=0.5, token_us=0, draft_ms=0, prefill_us=0)
SPECULATIVE = Character(step_ms=0.5, token_us=0, draft_ms=0, prefill_us=0, depth=4, acceptance=0.9, by_content=False)
QUICK = ("--per-kind", "2", "--max-tokens", "24")


def bench(*words: str) -> Result:
    return CliRunner().invoke(app, ["bench", *words])


def arms(plain: str, speculative: str) -> list[str]:
    return ["--plain", plain, "--speculative", speculative]


def record(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def found_names(result: Result) -> dict[str, str]:
    return {finding["name"]: finding["severity"] for finding in record(result)["findings"]}


def test_both_arms_are_measured_judged_and_reported(serve: Any, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    urls = arms(serve(replace(PLAIN, step_ms=1.0)), serve(replace(SPECULATIVE, step_ms=1.0)))
    result = bench(*urls, "--per-kind", "4", "--max-tokens", "64", "--report", str(page), "--json")
    assert result.exit_code == 0, result.output
    told = record(result)
    overall = told["cells"][0]
    assert (overall["kind"], overall["verdict"]) == ("all kinds", "pays")
    assert overall["ratios"]["equal_length"]["low"] > 1
    assert {cell["kind"] for cell in told["cells"][1:]} == {prompt.kind for prompt in built_in()}
    figures = overall["figures"]["speculative"]
    assert figures["acceptance_rate"]["value"] == pytest.approx((0.9 + 0.81 + 0.729 + 0.656) / 4, abs=0.05)
    assert len(figures["per_position"]) == 4
    assert figures["tokens_per_step"]["value"] > 2.5
    assert overall["figures"]["plain"]["acceptance_rate"] is None
    assert told["savings"][0]["saved_if_all"] > 0
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") >= 4
    assert not re.search(r"<script|<link|(?:src|href)=|url\(|@import", html)


def test_the_terminal_shows_both_arms_and_the_verdict(serve: Any) -> None:
    result = bench(*arms(serve(PLAIN), serve(SPECULATIVE)), *QUICK)
    assert result.exit_code == 0, result.output
    for words in ("latency P99", "per output token P50", "tokens per step", "Does speculation pay?", "all kinds"):
        assert words in result.stdout


def test_loads_share_the_prompts(serve: Any) -> None:
    result = bench(*arms(serve(PLAIN), serve(SPECULATIVE)), *QUICK, "--concurrency", "1,4", "--json")
    told = record(result)
    assert told["loads"] == ["1 at once", "4 at once"]
    sent = [(sample["arm"], sample["prompt"]) for sample in told["samples"]]
    assert len(sent) == len(set(sent)) == 32


def test_no_prompt_or_answer_text_leaves_in_the_record(serve: Any) -> None:
    result = bench(*arms(serve(PLAIN), serve(SPECULATIVE)), *QUICK, "--json")
    assert {sample["text"] for sample in record(result)["samples"]} == {""}


@pytest.fixture
def repeated(tmp_path: Path) -> str:
    path = tmp_path / "repeated.jsonl"
    path.write_text("".join(json.dumps({"prompt": "Count from one to a hundred."}) + "\n" for _ in range(10)))
    return str(path)


def test_repeated_prompts_are_refused_before_anything_is_measured(serve: Any, repeated: str) -> None:
    result = bench(*arms(serve(PLAIN), serve(SPECULATIVE)), "--prompts", repeated, "--json")
    assert result.exit_code == 1
    assert record(result)["refused"] is True
    assert record(result)["samples"] == []
    assert found_names(result)["repeated-prompts"] == "withheld"
    shown = bench(*arms(serve(PLAIN), serve(SPECULATIVE)), "--prompts", repeated)
    assert "90% of the prompts were there before." in " ".join(shown.stdout.split())
    assert "Refused" in shown.stdout


def test_allowed_repeats_run_and_stay_marked(serve: Any, repeated: str) -> None:
    result = bench(*arms(serve(PLAIN), serve(SPECULATIVE)), "--prompts", repeated, "--allow-repeats", "--json")
    assert result.exit_code == 0, result.output
    assert found_names(result)["repeated-prompts"] == "marked"
    assert len(record(result)["samples"]) == 20


@pytest.mark.parametrize(
    ("plain", "speculative", "name"),
    [
        (PLAIN, PLAIN, "not-speculating"),
        (SPECULATIVE, SPECULATIVE, "plain-speculates"),
        (PLAIN, Character(step_ms=0.5, depth=4, context_tokens=4096), "different-contexts"),
        (PLAIN, Character(step_ms=0.5, depth=4, seed=5), "different-answers"),
    ],
)
def test_arms_that_are_no_twins_are_refused(serve: Any, plain: Character, speculative: Character, name: str) -> None:
    result = bench(*arms(serve(plain), serve(speculative)), *QUICK, "--json")
    assert result.exit_code == 1
    assert found_names(result)[name] == "withheld"
    assert record(result)["samples"] == []


def test_anyway_measures_and_withholds_the_verdict(serve: Any) -> None:
    result = bench(*arms(serve(PLAIN), serve(PLAIN)), *QUICK, "--anyway")
    assert result.exit_code == 1
    assert "The verdict is withheld" in result.stdout
    assert "latency P50" in result.stdout


def test_a_model_without_chat_template_is_asked_for_completions(serve: Any) -> None:
    urls = arms(*(serve(Character(dialect="llamacpp", step_ms=0.5, depth=depth)) for depth in (0, 4)))
    result = bench(*urls, *QUICK, "--surface", "completions", "--json")
    assert result.exit_code == 0, result.output
    assert record(result)["discovered"]["speculative"]["engine"] == "llamacpp"
    assert record(result)["cells"][0]["figures"]["speculative"]["acceptance_rate"] is not None


def test_an_engine_that_is_not_there_is_the_operators_mistake() -> None:
    result = bench("--plain", "http://127.0.0.1:9", "--speculative", "http://127.0.0.1:10")
    assert result.exit_code == 2
    assert "127.0.0.1" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--kinds", "poetry"),
        ("--concurrency", "none"),
        ("--rate", "0"),
        ("--surface", "telegraph"),
        ("--extra-body", "[1]"),
        ("--speculative-header", "no colon"),
        ("--prompts", "nowhere.jsonl"),
    ],
)
def test_a_wrong_option_ends_with_two(words: tuple[str, str]) -> None:
    assert bench(*arms("http://a", "http://b"), *words).exit_code == 2


def test_the_same_address_needs_different_headers() -> None:
    assert bench(*arms("http://a", "http://a")).exit_code == 2


def test_options_become_values() -> None:
    assert [load.name for load in loads_of("1,16", "")] == ["1 at once", "16 at once"]
    assert [load.name for load in loads_of("1", "0.5,2")] == ["0.5/s", "2/s"]
    assert headers_of(["X-Lane: plain"], "k") == {"authorization": "Bearer k", "x-lane": "plain"}
    assert object_of('{"top_p": 1}') == {"top_p": 1}
    with pytest.raises(typer.BadParameter):
        object_of("")


def until_generated(url: str, tokens: int) -> None:
    """Wait until a simulated engine has generated so many tokens."""
    while (ENGINES["vllm"].read_metrics(httpx.get(url + "/metrics").text).generated_tokens or 0) < tokens:
        time.sleep(0.02)


def test_an_interrupted_run_reports_what_it_has(serve: Any) -> None:
    speculative = serve(Character(step_ms=4, token_us=0, draft_ms=0, prefill_us=0, depth=4))
    urls = arms(serve(Character(step_ms=4, token_us=0, draft_ms=0, prefill_us=0)), speculative)
    command = [sys.executable, "-m", "proxy", "bench", *urls, "--max-tokens", "16", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until_generated(speculative, 500)  # warm-up needs fewer
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    told = json.loads(said)
    assert told["interrupted"] is True
    assert 0 < len(told["samples"]) < 336
    assert "interrupted" in {finding["name"] for finding in told["findings"]}
