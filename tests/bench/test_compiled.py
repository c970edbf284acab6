"""Compiled it is the same gateway: what passes from source passes as machine code, figures to the last bit."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.compiled import ROOT, compiled, importing
from tests.bench.overhead_loads import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler (cc or gcc)")
FOLDED = ("tests/policies", "tests/playbooks", "tests/proxy/test_app_journal.py", "tests/proxy/test_replay_command.py")
"""Everything about the fold, and what is read back of what it wrote."""
RELAYED = (
    *(
        f"tests/wire/test_{what}.py"
        for what in (
            *("answers", "arrivals", "both_forms", "known_heads", "slow_clients"),
            *("splits", "waves", "whole_chunks"),
        )
    ),
    *(
        "tests/proxy/meter",
        "tests/proxy/surfaces",
        "tests/proxy/test_splice.py",
        "tests/proxy/test_log.py",
        "tests/fuzz",
    ),
)
"""What of the relay depends on bytes and their cuts: slices of mypyc's are not always Python's (``proxy.meter.blocks.between``)."""
TRACE = "t_s,client,input_tokens,output_tokens\n" + "".join(
    f"{0.05 * number:.2f},{'ab'[number % 3 == 0]},{200 + 97 * number % 4000},{20 + 31 * number % 900}\n"
    for number in range(600)
)


@pytest.fixture(scope="module")
def app() -> Path:
    """Not optimised: half the time to build, and the same translation."""
    return compiled(optimise="0")


def said(*words: str, path: Path) -> str:
    """What a command of Python printed, with ``path`` first on the import path."""
    done = subprocess.run(
        [sys.executable, *words], env=importing(path), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_it_says_that_it_is_compiled(app: Path) -> None:
    assert said("-m", "proxy", "--version", path=app).strip().endswith(", compiled")
    assert "compiled" not in said("-m", "proxy", "--version", path=ROOT)


@pytest.mark.timeout(600)
def test_a_simulation_comes_out_to_the_last_bit_as_from_source(app: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    words = ("-m", "proxy", "simulate", str(trace), "--policy", "break-even,least-load,fixed-ratio", "--json")
    assert said(*words, path=app) == said(*words, path=ROOT)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tests", [FOLDED, RELAYED], ids=["fold", "relay"])
def test_what_is_tested_of_it_holds_compiled_too(tests: tuple[str, ...], app: Path) -> None:
    told = said("-m", "pytest", "-q", "-o", f"pythonpath={app} .", "-p", "no:cacheprovider", *tests, path=app)
    assert " passed" in told or "[100%]" in told
