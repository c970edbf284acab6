"""What is derived from the code is fresh, and nothing is left unsaid: settings, verbs, pages, pins."""

import inspect
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proxy.cli import VERBS, as_command, load_verb
from proxy.config import schema
from proxy.config_reference import reference

ROOT = Path(__file__).parents[2]
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if page.exists()]


def test_the_json_schema_is_fresh() -> None:
    """``make docs`` writes it anew."""
    assert json.loads((ROOT / "deploy/draftlane.schema.json").read_text()) == schema()


def test_the_reference_page_is_fresh() -> None:
    """``make docs`` writes it anew."""
    assert (ROOT / "docs/configuration.md").read_text().rstrip("\n") == reference(schema()).rstrip("\n")


def settings() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(table, name, schema) of every setting."""
    said = schema()
    for table, node in {"": said, **said["$defs"]}.items():
        for name, setting in node["properties"].items():
            yield table, name, setting


def test_every_setting_says_what_it_is_for() -> None:
    assert [
        f"{table}.{name}" for table, name, setting in settings() if not {"description", "$ref"} & set(setting)
    ] == []


def test_every_duration_and_size_names_its_unit() -> None:
    units = ("_seconds", "_bytes", "_tokens", "_share", "_requests", "_factor", "_rate", "_ratio", "_files", "_2x")
    lists = ("timeouts", "Timeouts", "Watch", "Journal", "Keys")
    numbers = [
        f"{table}.{name}"
        for table, name, setting in settings()
        if table in lists and setting.get("type") in ("integer", "number") and not name.endswith(units)
    ]
    assert numbers == []


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that changes nothing is a lie to the operator."""
    code = "\n".join(path.read_text() for room in ("proxy", "policies") for path in sorted((ROOT / room).rglob("*.py")))
    unread = [
        f"{table}.{name}"
        for table, name, setting in settings()
        if not re.search(rf"\.{name}\b", code) and not re.search(rf"\*\*\w+\.{table.lower()}\.model_dump", code)
    ]
    assert unread == []


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_and_option_says_what_it_does(name: str) -> None:
    function = load_verb(name)
    assert inspect.getdoc(function)
    silent = [option.name for option in as_command(name).params if not getattr(option, "help", None)]
    assert silent == []
    assert get_type_hints(function)["return"] is type(None)


def commands(page: Path) -> Iterator[list[str]]:
    """Command lines in the fenced blocks of a page."""
    for block in re.findall(r"```(?:sh|bash|console|shell|text)?\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = line.removeprefix("$ ").split("#")[0].split()
            if words[:1] in (["make"], ["draftlane"]):
                yield words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *words in commands(page):
        if program == "make":
            assert {word for word in words if re.fullmatch("[a-z]+", word)} <= targets, words
        elif words and not words[0].startswith(("-", "[")):
            assert words[0] in VERBS, words
            options = {
                option for param in as_command(words[0]).params for option in (*param.opts, *param.secondary_opts)
            }
            used = {word.strip("[]").partition("=")[0] for word in words[1:] if re.match(r"\[?--?[a-z]", word)}
            assert used <= options | {"--help"}, words


def test_make_runs_files_that_exist() -> None:
    text = (ROOT / "Makefile").read_text()
    defaults = dict(re.findall(r"^(\w+) \?= (\w+)$", text, re.MULTILINE))
    files = re.findall(r"(?:python|sh) ((?:tests|\.ci)/[\w./$()]+)", text)
    assert files
    assert [
        file for file in files if not (ROOT / re.sub(r"\$\((\w+)\)", lambda m: defaults[m[1]], file)).exists()
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_on_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


def test_every_verb_is_on_the_readme() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README yet")
    missing = [name for name in VERBS if f"draftlane {name}" not in readme.read_text()]
    assert missing == []


def pins() -> dict[str, str]:
    """Package → exact version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line.split(";")[0].strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+", pin) for pin in pinned)
    return {canonicalize_name(name): version for name, version in (pin.split("==") for pin in pinned)}


def test_every_requirement_is_pinned_as_asked_for() -> None:
    """``make lock`` pins anew."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [*asked["project"]["optional-dependencies"].values(), *asked["dependency-groups"].values()]
    pinned = pins()
    for text in [*asked["project"]["dependencies"], *(text for group in groups for text in group)]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text
