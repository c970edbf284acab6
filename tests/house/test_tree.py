"""What must not be in the tree, and what the linter must catch."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("proxy", "policies", "tests", "deploy", "docs", ".ci")
BINARY = {".pyc", ".png", ".gz", ".ico", ".woff2", ".zst"}
FOREIGN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/\w"),
    "a folder beside the project": re.compile(r"\.\./" + "shared"),
    "the host of a package index": re.compile(r"pypi\." + r"org|files\.pythonhosted|registry\.npmjs"),
    "a private key": re.compile("-----BEGIN (?:RSA |EC )?PRIVATE " + "KEY-----"),
    "a conflict marker": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
}


def texts() -> Iterator[tuple[Path, str]]:
    files = [path for path in ROOT.iterdir() if path.is_file() and path.suffix != ".log"]
    for place in PLACES:
        found = [path for path in (ROOT / place).rglob("*") if path.is_file()]
        files += [path for path in found if not re.search(r"/(__pycache__|\.\w+_cache)/", str(path))]
    for path in sorted(files):
        if path.suffix not in BINARY:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("what", FOREIGN)
def test_the_tree_holds_nothing_foreign(what: str) -> None:
    assert [str(path) for path, text in texts() if FOREIGN[what].search(text)] == []


def test_silenced_checkers_say_why() -> None:
    """``# noqa: X`` and ``# type: ignore[x]`` carry a reason behind them; a bare one silences too much as well."""
    silent = re.compile(r"#\s*(?:noqa(?!: [A-Z0-9, ]+ ?[-–—#(] ?\w)|type: ignore(?!\[[a-z-, ]+\]\s+[#-–—]\s*\w))")
    found = [
        f"{path}:{number}"
        for path, text in texts()
        if path.suffix == ".py"
        for number, line in enumerate(text.splitlines(), 1)
        if silent.search(line) and "re.compile" not in line and "``" not in line
    ]
    assert found == []


def ruff(code: str, path: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "--stdin-filename", path, "-"],
        input=code,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    return ran.stdout


@pytest.mark.parametrize(
    ("module", "reason"),
    [("time", "has no clock"), ("random", "draws no lots"), ("socket", "talks to nobody"), ("logging", "logs nothing")],
)
def test_the_linter_says_why_policies_may_not(module: str, reason: str) -> None:
    code = f'"""A policy."""\n\nimport {module}\n\nprint({module})\n'
    assert f"TID251 `{module}` is banned: policies/ {reason}" in ruff(code, "policies/wrong.py")
    assert "TID251" not in ruff(code, "proxy/right.py")
