"""The command line as an operator meets it, in processes of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import VERBS
from proxy.version import VERSION

ROOT = Path(__file__).parents[2]


def draftlane(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxy", *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "200", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def test_help_lists_every_verb_in_the_order_of_the_table() -> None:
    ran = draftlane("--help")
    places = [ran.stdout.index(f" {name} ") for name in VERBS]
    assert ran.returncode == 0
    assert places == sorted(places)
    assert all(verb.summary in ran.stdout for verb in VERBS.values())


def test_help_imports_no_verb() -> None:
    code = (
        "import sys; sys.argv = ['draftlane', '--help']\n"
        "from proxy.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('proxy.commands.', 'pydantic', 'httpx', 'fastapi'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_the_version() -> None:
    assert draftlane("--version").stdout == f"draftlane {VERSION}\n"


@pytest.mark.parametrize("words", [["fly"], ["check"], ["check", "--colour", "-c", "x"], []])
def test_a_wrong_command_line_ends_with_2_and_no_traceback(words: list[str]) -> None:
    ran = draftlane(*words)
    assert ran.returncode == 2
    assert "Usage" in ran.stderr + ran.stdout
    assert "Traceback" not in ran.stderr


def test_faults_of_a_file_end_with_2_and_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "draftlane.toml").write_text('[[backends]]\nurll = "http://a"\nlane = "fast"')
    ran = draftlane("check", "-c", "draftlane.toml", folder=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "draftlane.toml: backends.0.url: this key is required",
        "draftlane.toml: backends.0.lane: should be 'speculative' or 'plain'",
        "draftlane.toml: backends.0.urll: unexpected key (did you mean url?)",
    ]
    assert ran.stdout == ""


def test_schema_prints_json_and_the_reference_page() -> None:
    assert json.loads(draftlane("schema").stdout)["title"] == "draftlane.toml"
    assert draftlane("schema", "--markdown").stdout.startswith("# Configuration")


def test_output_into_a_closed_pipe_is_no_traceback() -> None:
    ran = subprocess.run(
        f"{sys.executable} -m proxy schema | head -1", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("{\n", "")


def test_a_verb_whose_extra_is_not_installed_says_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['httpx'] = None\n")
    ran = subprocess.run(
        [sys.executable, "-m", "proxy", "check", "-c", "x.toml"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    assert ran.stderr == "draftlane: this verb needs the package httpx, which comes with the demo extra\n"
