"""``draftlane estimate`` as an operator meets it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proxy.cli import app
from proxy.hardware import CHIPS, MODELS, WEIGHTS
from proxy.hardware_names import UnknownNameError, find

DOCS = Path(__file__).parents[2] / "docs" / "estimate.md"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["estimate", *arguments], env={"COLUMNS": "100"})


def asked(*arguments: str) -> dict[str, object]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, object] = json.loads(result.output)
    return answer


def test_the_line_of_the_manual_answers_for_three_batches() -> None:
    answer = asked("--gpu", "H100", "--model", "qwen3-32b", "--draft", "qwen3-0.6b", "--batch", "1,8,32")
    batches = answer["batches"]
    assert isinstance(batches, list)
    assert [row["batch"] for row in batches] == [1, 8, 32]
    assert [row["verdict"] for row in batches] == ["can pay"] * 3
    assert all(row["break_even_rate"] < 0.2 < row["spare_compute"] for row in batches)
    assert answer["modelled"] is True
    assert answer["acceptance_is_assumed"] is True


def test_it_says_in_two_sentences_why_a_home_card_with_a_4_bit_moe_gains_nothing() -> None:
    result = run("--gpu", "RTX 5060 Ti", "--model", "gemma-4-26b-a4b", "--weights", "q4_k_m", "--batch", "1", "-k", "4")
    said = " ".join(result.output.split())
    assert "wakes 35 of 128 experts per layer instead of 8" in said
    assert "without matrix units" in said
    assert "to break even" in said
    why = asked("--gpu", "RTX 5060 Ti", "--model", "gemma-4-26b-a4b", "--weights", "q4", "--batch", "1", "-k", "4")
    assert isinstance(why["batches"], list)
    assert why["batches"][0]["why"].count(". ") == 1


def test_a_drafter_that_cannot_pay_is_said_to_be_hopeless() -> None:
    result = run("--gpu", "h100", "--model", "qwen3-8b", "--draft", "qwen3-14b", "-k", "1", "--batch", "1")
    assert "it cannot pay" in " ".join(result.output.split())


def test_own_figures_replace_the_preset_and_say_so() -> None:
    slow = asked("--gpu", "h100", "--bandwidth", "100", "--tflops", "50", "--batch", "1")
    fast = asked("--gpu", "h100", "--batch", "1")
    assert isinstance(slow["batches"], list)
    assert isinstance(fast["batches"], list)
    assert slow["batches"][0]["plain_step_ms"] > 10 * fast["batches"][0]["plain_step_ms"]
    assert "own figures over h100" in str(slow["sources"])


def test_weights_that_do_not_fit_are_called_hypothetical() -> None:
    assert "do not fit" in run("--gpu", "rtx-3060", "--model", "llama-3.1-405b", "--batch", "1").output
    assert "do not fit" not in run("--gpu", "h200", "--model", "deepseek-v3", "--gpus", "8", "--batch", "1").output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--gpu", "RTX 9999"), "rtx-5090"),
        (("--model", "gwen3-32b"), "qwen3-32b"),
        (("--weights", "q3"), "--weights"),
        (("--batch", "1,two"), "whole numbers"),
        (("--batch", "0"), "nothing below 1"),
        (("--method", "magic"), "draft, eagle, mtp, ngram"),
        (("--method", "draft"), "needs --draft"),
        (("--draft", "qwen3-0.6b", "--method", "ngram"), "needs --method draft"),
    ],
)
def test_an_operators_mistake_is_told_with_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA H100 SXM", "h100"),
        ("4090", "rtx-4090"),
        ("GeForce RTX 5060 Ti", "rtx-5060-ti"),
        ("A100", "a100-80"),
        ("trn2", "trainium2"),
    ],
)
def test_gpus_go_by_the_names_people_use(written: str, meant: str) -> None:
    assert find(CHIPS, written) is CHIPS[meant]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_models_go_by_their_hugging_face_names(written: str, meant: str) -> None:
    assert find(MODELS, written) is MODELS[meant]


def test_an_unknown_name_comes_with_its_neighbours() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find(MODELS, "llama-3.1-7b")
    assert "llama-3.1-8b" in caught.value.near


def test_every_preset_names_its_source_and_every_listing_shows_it() -> None:
    sources = [row.source for table in (CHIPS, MODELS, WEIGHTS) for row in table.values()]
    assert all(sources)
    shown = run("--list").output
    assert [name for name in (*CHIPS, *MODELS, *WEIGHTS) if name not in shown] == []


def test_every_preset_answers() -> None:
    for chip in CHIPS:
        assert asked("--gpu", chip, "--model", "qwen3-30b-a3b", "--batch", "1")["gpu"] == chip
    for model in MODELS:
        assert asked("--model", model, "--batch", "4", "--method", "mtp")["model"] == model


def test_the_manual_shows_what_the_command_prints() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for arguments in (
        ("--gpu", "H100", "--model", "qwen3-32b", "--draft", "qwen3-0.6b", "--batch", "1,8,32,256"),
        ("--gpu", "RTX 5060 Ti", "--model", "gemma-4-26b-a4b", "--weights", "q4_k_m", "--batch", "1", "-k", "4"),
    ):
        printed = [line.rstrip() for line in run(*arguments).output.splitlines() if line.strip()]
        assert [line for line in printed if line not in page] == []
