"""``policies/`` is pure: it imports nothing but itself and the inert part of the standard library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "policies"
INERT = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "types",
    "typing",
}
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id", "vars", "globals"}
"""``hash`` and ``id`` differ between processes: no replay would be equal."""


def modules() -> list[Path]:
    return sorted(ROOM.rglob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.stem)
def test_imports_only_what_cannot_act(path: Path) -> None:
    foreign = {n for n in imported(ast.parse(path.read_text())) if n not in INERT and n.split(".")[0] != "policies"}
    assert foreign == set()


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.stem)
def test_calls_nothing_that_acts_or_differs_between_processes(path: Path) -> None:
    called = [
        f"{path.name}:{node.lineno} {node.func.id}()"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS
    ]
    assert called == []


def test_pulls_in_no_module_of_the_world() -> None:
    """Whatever the inert modules bring with them is theirs; beyond that, only policies may appear."""
    names = [f"policies.{path.stem}" for path in modules() if path.stem != "__init__"]
    program = (
        f"import sys\nsys.path.insert(0, {str(ROOM.parent)!r})\n"
        f"for name in {sorted(INERT)!r}: __import__(name)\n"
        "before = sorted(sys.modules)\n"
        f"for name in {names!r}: __import__(name)\n"
        "new = [n for n in sys.modules if n not in before and n.split('.')[0] != 'policies']\n"
        "sys.stdout.write(' '.join(new))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
