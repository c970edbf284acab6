"""``draftlane tune`` against simulated engines: running ones, and ones it starts and stops."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from proxy.cli import app
from proxy.commands.tune import candidates_of
from proxy.proof.launch import EngineFailedError, filled, free_port, started
from proxy.simulated.character import Character

QUICK = ("--kinds", "chat,code", "--per-kind", "6", "--max-tokens", "32")
ENGINE = f"{shlex.quote(sys.executable)} -m proxy engine --step-ms 1 --draft-ms 0.3 --token-us 0 --uniform"


def tune(*words: str) -> Result:
    return CliRunner().invoke(app, ["tune", *words])


def record(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def engine(depth: int, acceptance: float = 0.5) -> Character:
    """A draft token costs 0.3 steps: with a half accepted, only shallow drafts are worth it."""
    return Character(
        step_ms=1.0, token_us=0, draft_ms=0.3, prefill_us=0, depth=depth, acceptance=acceptance, by_content=False
    )


def test_running_engines_are_piloted_on_the_deepest_and_the_hopeless_are_left_out(serve: Any, tmp_path: Path) -> None:
    page = tmp_path / "tune.html"
    arms = [word for depth in (1, 2, 10) for word in ("--arm", f"{depth}={serve(engine(depth))}")]
    words = ("--kinds", "chat,code", "--per-kind", "20", "--max-tokens", "48", "--report", str(page), "--json")
    result = tune(*arms, "--plain", serve(engine(0)), *words)
    assert result.exit_code == 0, result.output
    told = record(result)
    assert told["skipped"] == ["10"]
    assert {prediction["depth"] for prediction in told["predictions"]} == {1, 2, 10}
    assert set(told["discovered"]) == {"plain", "1", "2", "10"}
    overall = told["advice"][0]
    assert {setting["label"] for setting in overall["settings"]} == {"plain", "1", "2"}
    assert overall["take"] in ("1", "2")
    assert told["paste"][0]["text"].startswith('--speculative-config \'{"method"')
    assert "<svg" in page.read_text(encoding="utf-8")


def test_everything_is_run_when_asked_for(serve: Any) -> None:
    arms = [word for depth in (1, 6) for word in ("--arm", f"{depth}={serve(engine(depth))}")]
    told = record(tune(*arms, *QUICK, "--all", "--json"))
    assert told["predictions"] == []
    assert {setting["label"] for setting in told["advice"][0]["settings"]} == {"1", "6"}
    assert "no plain arm" in told["advice"][0]["sentence"]


def test_engines_are_started_one_by_one_and_stopped_again() -> None:
    command = f"{ENGINE} --port {{port}} --speculative {{k}} --acceptance 0.5"
    result = tune("--command", command, "--depths", "1,2,8", "--plain-command", f"{ENGINE} --port {{port}}", *QUICK)
    assert result.exit_code == 0, result.output
    for words in ("Predicted per output token", "Recommendation", "all kinds", "command: "):
        assert words in result.stdout
    assert "Not run, since not worth it by that: " not in result.stdout.split("Recommendation")[1]


def test_other_settings_than_the_depth_are_varied_together() -> None:
    command = f"{ENGINE} --port {{port}} --speculative {{k}} --acceptance {{often}}"
    words = ("--depths", "2", "--vary", "often=0.2,0.9", "--all", "--json")
    told = record(tune("--command", command, *words, *QUICK))
    overall = told["advice"][0]
    assert {setting["label"] for setting in overall["settings"]} == {"k=2 often=0.2", "k=2 often=0.9"}
    assert overall["best"] == "k=2 often=0.9"


def test_repeated_prompts_get_no_recommendation(tmp_path: Path) -> None:
    path = tmp_path / "repeated.txt"
    path.write_text("Name a colour.\n" * 9)
    result = tune("--arm", "4=http://127.0.0.1:9", "--prompts", str(path))
    assert result.exit_code == 1
    assert "The recommendation is withheld" in result.stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--arm", "4=http://a", "--command", "x {k} {port}"),
        ("--arm", "4"),
        ("--arm", "4=http://a", "--arm", "4=http://b"),
        ("--command", "serve {k}"),
        ("--command", "serve {port}"),
        ("--command", "serve {k} {port}", "--vary", "n=1"),
        ("--command", "serve {k} {port}", "--depths", ""),
        ("--command", "no-such-program {k} {port}", "--depths", "4"),
        ("--arm", "4=http://127.0.0.1:9"),
        ("--arm", "4=http://a", "--plain-command", "serve"),
    ],
)
def test_a_wrong_call_ends_with_two(words: tuple[str, ...]) -> None:
    assert tune(*words).exit_code == 2


def test_names_are_filled_in_and_json_braces_stay() -> None:
    template = "serve --port {port} --speculative-config '{\"num_speculative_tokens\": {k}}'"
    (candidate,) = candidates_of([], template, "5", [])
    assert (candidate.label, candidate.depth) == ("5", 5)
    assert filled(candidate.command, {"port": "80"}).endswith("'{\"num_speculative_tokens\": 5}'")
    with pytest.raises(KeyError):
        filled("serve", {"port": "80"})


async def test_a_started_engine_serves_within_the_block_and_not_after() -> None:
    port = free_port()
    async with started(f"{ENGINE} --port {port}", port, 30) as url, httpx.AsyncClient() as http:
        assert (await http.get(url + "/health")).status_code == 200
    async with httpx.AsyncClient() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url + "/health")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('no GPU here')", "status 1: no GPU here"),
        ("import time; time.sleep(60)", "not serving after 1 s"),
    ],
)
async def test_an_engine_that_does_not_come_up_says_why(code: str, said: str) -> None:
    with pytest.raises(EngineFailedError, match=said):
        async with started(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}", free_port(), 1):
            pytest.fail("it does not serve")
