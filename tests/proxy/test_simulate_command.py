"""``draftlane simulate`` from the outside: traces in, tables, JSON and a verdict out; mistakes told in a sentence."""

import json
import os
import subprocess
import sys
from math import exp
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from policies.simulation_workload import normal, uniform
from proxy import presets, profiles
from proxy.cli import app
from proxy.hardware import CHIPS, MODELS, WEIGHTS
from proxy.profiles import ProfileError


def simulate(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, words)], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    """A writer and a search, 400 requests."""
    lines, at = ["t_s,client,input_tokens,output_tokens"], 0.0
    for n in range(400):
        at += 0.2 * uniform(5, 30, n)
        size = exp(0.5 * normal(5, 31, n))
        lines.append(
            f"{at:.3f},writer,{200 * size:.0f},{300 * size:.0f}" if n % 2 else f"{at:.3f},search,{3000 * size:.0f},20"
        )
    path = tmp_path / "mixed.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    read: dict[str, Any] = json.loads(result.stdout)
    return read


def test_it_says_that_it_is_simulated_compares_policies_and_gives_a_verdict(trace: Path) -> None:
    result = simulate(trace, "--policy", "break-even,least-load", "--load", "0.5")
    assert result.exit_code == 0, result.output
    for word in ("Simulated", "no GPU was used", "break-even", "least-load", "all-plain", "Verdict: ", "requests/s"):
        assert word in result.output


def test_the_same_words_print_the_same_bytes_in_every_process(trace: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "proxy",
        "simulate",
        str(trace),
        "--policy",
        "least-load",
        "--load",
        "0.5",
        "--json",
    ]
    root = Path(__file__).parents[2]
    printed = {
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, cwd=root, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_json_holds_every_figure_and_the_seed_fixes_them(trace: Path) -> None:
    words = (trace, "--policy", "break-even,knows-cost", "--rate", "5,20", "--seed", "3", "--json")
    first = told(simulate(*words))
    assert first == told(simulate(*words))
    assert first["simulated"] is True
    assert first["requests"] == 400
    assert [round(run["rate"]) for run in first["runs"]] == [5, 20]
    for run in first["runs"]:
        assert set(run["policies"]) == {"break-even", "knows-cost"}
        assert min(one["regret"] for one in run["policies"].values()) == 0.0
        assert set(run["fleets"]) == {"split", "all-speculative", "all-plain"}
        one = run["policies"]["break-even"]
        assert one["requests"] == 400
        assert 0.0 < one["ttft"]["mean"] < one["latency"]["mean"]
        assert 0.0 < one["tpot"]["p50"] < one["latency"]["p50"] <= one["latency"]["p99"]
        assert one["tokens_per_second"] > 0
    assert (
        told(simulate(trace, "--rate", "5,20", "--seed", "4", "--policy", "break-even", "--json"))["runs"]
        != first["runs"]
    )


def test_latency_grows_with_load(trace: Path) -> None:
    runs = told(simulate(trace, "--policy", "least-load", "--load", "0.2,1.2", "--json"))["runs"]
    calm, busy = (run["policies"]["least-load"]["latency"]["mean"] for run in runs)
    assert busy > 1.5 * calm


def test_a_drafter_that_is_always_right_wants_every_server_to_speculate(trace: Path, tmp_path: Path) -> None:
    run = told(
        simulate(trace, "--profile", right(tmp_path, [0, 0, 0, 1]), "--policy", "break-even", "--rate", "6", "--json")
    )["runs"][0]
    assert run["verdict"] == {"fleet": "all-speculative", "clear": True}


def test_a_drafter_that_is_never_right_wants_none(trace: Path, tmp_path: Path) -> None:
    run = told(
        simulate(trace, "--profile", right(tmp_path, [1, 0, 0, 0]), "--policy", "break-even", "--load", "0.9", "--json")
    )["runs"][0]
    assert run["verdict"] == {"fleet": "all-plain", "clear": True}


def right(folder: Path, hist: list[float]) -> Path:
    path = folder / "profile.json"
    path.write_text(json.dumps({"profiles": [{"kind": "any", "method": "eagle3", "k": 3, "hist": hist}]}))
    return path


def test_one_server_cannot_be_split(trace: Path) -> None:
    run = told(simulate(trace, "--backends", "plain=1", "--policy", "break-even", "--rate", "2", "--json"))["runs"][0]
    assert set(run["fleets"]) == {"all-speculative", "all-plain"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--policy", "psychic"), "psychic"),
        (("--policy", ","), "no policy"),
        (("--backends", "plain=0,speculative=0"), "1 to 64"),
        (("--backends", "fast=1"), "is like"),
        (("--rate", "five"), "numbers with commas"),
        (("--load", "0"), "greater than 0"),
        (("--content", "klingon"), "klingon"),
        (("--content", "nobody=chat"), "nobody"),
        (("--gpu", "abacus"), "abacus"),
        (("--drafter", "oracle"), "oracle"),
        (("--model", "llama-3.1-405b"), "leaves no room"),
    ],
)
def test_an_operators_mistake_is_exit_2_and_a_sentence(trace: Path, words: tuple[str, ...], sentence: str) -> None:
    result = simulate(trace, *words)
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_broken_trace_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t_s,input_tokens,output_tokens\n1,5,5\n2,x,5\n")
    result = simulate(path)
    assert result.exit_code == 2
    assert "t.csv:3:" in result.output.replace("\n", "")


def test_profiles_are_read_by_method_and_depth(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    entries = [
        {
            "kind": "chat",
            "method": "eagle3",
            "k": 3,
            "hist": [4, 2, 1, 3],
            "request_al_mean": 2.4,
            "request_al_sd": 0.35,
        },
        {"kind": "chat", "method": "ngram", "k": 3, "hist": [0.8, 0, 0, 0.2]},
        {"kind": "chat", "method": "eagle3", "k": 1, "hist": [0.4, 0.6]},
    ]
    path.write_text(json.dumps({"profiles": entries, "about": "made for this test"}))
    eagle = profiles.read(path, "eagle", 3, always=True)["chat"]
    assert (eagle.length, eagle.spread, eagle.drafted) == pytest.approx((2.4, 0.25, 1.0))
    assert eagle.variance == pytest.approx(0.2 + 0.4 + 2.7 - 1.3**2)
    lookup = profiles.read(path, "ngram", 3, always=False)["chat"]
    assert lookup.drafted == pytest.approx(0.6 / (0.8 * 3))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "p.json"),
        ('{"profiles": [{"kind": "chat", "k": 3}]}', "hist"),
        ('{"profiles": [{"kind": "chat", "k": 3, "hist": [1, 1]}]}', "needs 4 shares"),
        ('{"profiles": [{"kind": "chat", "k": 3, "hist": [0, 0, 0, 0]}]}', "positive sum"),
        ('{"profiles": [{"kind": "chat", "k": 5, "method": "eagle", "hist": [1, 1, 1, 1, 1, 1]}]}', "it has eagle k=5"),
        ('{"profiles": []}', "it has nothing"),
    ],
)
def test_a_profile_that_does_not_fit_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=sentence):
        profiles.read(path, "eagle", 3, always=True)


def test_presets_are_ordered_as_hardware_is() -> None:
    fast, slow = (presets.hardware(CHIPS[chip], MODELS["llama-3.1-8b"], WEIGHTS["bf16"]) for chip in ("h100", "l40s"))
    assert fast.fixed_seconds < slow.fixed_seconds
    assert fast.token_seconds < slow.token_seconds
    assert fast.cache_tokens > slow.cache_tokens
    for name, method in presets.METHODS.items():
        for kind, usual in presets.drafter(name).kinds.items():
            assert 1.0 < usual.length < method.depth + 1, (name, kind)
            assert (usual.drafted == 1.0) == method.always
