"""How code is laid out: short functions, telling names, one direction of imports, one entry per thing."""

import ast
import re
import statistics
from collections.abc import Iterator
from importlib import import_module, metadata, util
from pathlib import Path

import pytest

import proxy
from proxy.cli import VERBS, load_verb
from proxy.engines import ENGINES

ROOT = Path(__file__).parents[2]
ROOMS = ("proxy", "policies")
LINES_OF_A_FUNCTION = 40
LINES_OF_A_MODULE = 500
EMPTY_NAMES = {
    "utils",
    "util",
    "common",
    "core",
    "manager",
    "managers",
    "service",
    "services",
    "helpers",
    "helper",
    "misc",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int, str]]:
    """(name with its place, length in lines, source) of every function in a file."""
    source = path.read_text()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            end = node.end_lineno or node.lineno
            text = "\n".join(lines[node.lineno - 1 : end])
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", end - node.lineno + 1, text


def test_no_function_is_long_without_a_reason() -> None:
    """A longer one says why in a comment inside it: ``# long: one line per option``."""
    long = [
        f"{name} has {length} lines"
        for path in modules(*ROOMS, "tests")
        for name, length, source in functions(path)
        if length > LINES_OF_A_FUNCTION and not re.search(r"#\s*long: \w", source)
    ]
    assert long == []


def test_most_functions_are_short() -> None:
    lengths = [length for path in modules(*ROOMS) for _, length, _ in functions(path)]
    assert statistics.median(lengths) <= 10
    assert statistics.quantiles(lengths, n=10)[8] <= 30


def test_no_module_is_a_heap() -> None:
    heaps = [str(path) for path in modules(*ROOMS) if len(path.read_text().splitlines()) > LINES_OF_A_MODULE]
    assert heaps == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = [
        str(path.relative_to(ROOT))
        for path in modules(*ROOMS, "tests")
        if EMPTY_NAMES & {path.stem, *path.relative_to(ROOT).parts[:-1]}
    ]
    assert empty == []


def public(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | Function]:
    """What needs a docstring: the module, unless it is empty, and its public classes and functions."""
    if tree.body:
        yield tree
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def test_every_module_and_public_class_and_function_says_what_it_is() -> None:
    silent = [
        f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}"
        for path in modules(*ROOMS)
        for node in public(ast.parse(path.read_text()))
        if ast.get_docstring(node) is None
    ]
    assert silent == []


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level or (node.module or "").partition(".")[0]


def test_imports_go_one_way() -> None:
    """tests → proxy → policies → stdlib; and never relative, so that every import says where it leads."""
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for room, never in (("proxy", {"tests"}), ("policies", {"tests", "proxy"}))
        for path in modules(room)
        for name in imported(path)
        if name in never or name.startswith(".")
    }
    assert wrong == set()


def test_no_test_folder_is_a_package() -> None:
    """An ``__init__.py`` in tests/policies would make ``import policies`` find the tests."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_distribution_brings_our_import_names(room: str) -> None:
    """PyPI has a ``proxy`` (proxy.py) and a ``policies``; installed side by side they would break each other silently."""
    assert set(metadata.packages_distributions().get(room, [])) <= {"draftlane"}
    spec = util.find_spec(room)
    assert spec is not None
    assert spec.origin == str(ROOT / room / "__init__.py")
    assert Path(proxy.__file__).parent == ROOT / "proxy"


def test_every_verb_is_one_file_and_one_entry() -> None:
    files = {f"proxy.commands.{path.stem}" for path in (ROOT / "proxy/commands").glob("*.py")} - {
        "proxy.commands.__init__"
    }
    entries = [verb.target.partition(":")[0] for verb in VERBS.values()]
    assert len(entries) == len(set(entries))
    assert files == set(entries)
    assert all(verb.target == f"proxy.commands.{name}:{name}" for name, verb in VERBS.items())


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_can_be_imported(name: str) -> None:
    assert callable(load_verb(name))


def test_every_engine_is_one_file_and_one_entry() -> None:
    for name in ENGINES:
        module = import_module(f"proxy.engines.{name.replace('-', '_')}")
        mine = [value for value in vars(module).values() if value in ENGINES.values()]
        assert mine == [ENGINES[name]]
