"""The benchmark and the soak run, on next to nothing, and say what they should. Nothing here looks at a time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import overhead, soak
from tests.bench.overhead_figures import FIGURES, markdown, missed, rows
from tests.bench.overhead_loads import compiler
from tests.bench.overhead_targets import installed

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler (cc or gcc); client and backend are in C")


def told(module: str, *words: str) -> Any:
    """What a benchmark printed as JSON."""
    command = [sys.executable, "-m", f"tests.bench.{module}", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@needs_compiler
def test_the_overhead_benchmark_measures_every_figure_and_every_answer_is_whole() -> None:
    said = told(
        "overhead", "--source", "--rounds", "1", "--seconds", "0.2", "--streams", "5", "--events", "10", "--held", "5"
    )
    assert said["faults"] == []
    names = {"draftlane", *(name for name, here in installed().items() if here)}
    assert set(said["summary"]) == names
    for figures in said["summary"].values():
        assert set(figures) == {figure.name for figure in FIGURES}
        assert None not in figures.values()
    for loads in said["rounds"]["draftlane"]:
        assert all(report["good"] for load, report in loads.items() if load != "memory")
        assert loads["memory"]["open"] == 5


@needs_compiler
def test_the_soak_shows_a_curve_for_each_load() -> None:
    said = told("soak", "--requests", "200", "--streams", "3", "--openings", "3", "--seconds", "0.5", "--hours", "0.05")
    assert {len(curve) > 2 for curve in said["curves"].values()} == {True}
    assert set(said["growth"]) == set(said["curves"])


def test_figures_compare_with_the_reference_beside_them() -> None:
    def summary(value: float) -> dict[str, float | None]:
        return dict.fromkeys((figure.name for figure in FIGURES), value)

    cheap, dear = summary(10.0), summary(24.0)
    request, event = FIGURES[0].name, FIGURES[1].name
    assert request not in missed({"nginx": cheap, "draftlane": dear})
    assert event in missed({"nginx": cheap, "draftlane": dear})
    assert request not in missed({"draftlane": dear}), "nothing to compare with"
    head, first, *_ = rows({"nginx": cheap, "draftlane": dear})
    assert head == ["", "nginx", "draftlane", "× nginx", "target"]
    assert first[1:] == ["10.0", "24.0", "2.40", "≤ 2.5 ×"]
    assert len({line.count("|") for line in markdown([head, first]).splitlines()}) == 1


def test_the_page_keeps_what_is_around_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "speed.md"
    page.write_text(f"before\n{overhead.BEGIN}\nold\n{overhead.END}\nafter\n")
    monkeypatch.setattr(overhead, "PAGE", page)
    overhead.write_page("| new |", 3, source=True)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| new |" in text
    assert "old" not in text
    assert overhead.BEGIN in (ROOT / "docs/speed.md").read_text()


def test_a_curve_that_rises_is_seen_and_one_that_settles_is_not() -> None:
    settles = [60.0, 66.0, 68.0, *[70.0] * 17]
    assert soak.growth(settles) < soak.GROWTH_MB
    assert soak.growth([60.0 + step for step in range(20)]) > soak.GROWTH_MB
    assert soak.plot(settles).count("\n") == soak.HEIGHT
