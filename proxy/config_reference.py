"""The reference page of the configuration, made from its JSON Schema so that it cannot disagree with it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Node = Mapping[str, Any]

PREFACE = """# Configuration

<!-- Made by `make docs` from the settings themselves; edit those. -->

`draftlane serve -c draftlane.toml` reads one TOML file. Every setting has a default except a backend's `url` and `lane`, so
the smallest file is two tables:

```toml
[[backends]]
url = "http://127.0.0.1:8000"
lane = "speculative"

[[backends]]
url = "http://127.0.0.1:8001"
lane = "plain"
```

`draftlane check -c draftlane.toml` tells every fault of a file at once, each with its path; `--live` also asks the backends.
Unknown keys are faults. Relative paths count from the folder of the file. The unit is in the name. More files to start from:
[`deploy/examples`](../deploy/examples). For completion in editors, put `#:schema draftlane.schema.json` on the first line
([`deploy/draftlane.schema.json`](../deploy/draftlane.schema.json), or `draftlane schema`).
"""


def reference(schema: Node) -> str:
    """The page, in Markdown: one heading per table, one row per setting."""
    return PREFACE + "".join(_table("", schema, schema))


def _table(path: str, table: Node, schema: Node) -> Iterator[str]:
    """A table's rows, then the tables inside it."""
    rows, inner = [], []
    for name, setting in table["properties"].items():
        place = f"{path}.{name}".lstrip(".")
        if (heading := _heading(place, setting, schema)) is not None:
            inner.append((heading, place, _target(setting, schema), setting))
        else:
            required = name in table.get("required", ())
            rows.append(_row(name, setting, required))
    if rows:
        yield "\n| Setting | Type | Default | Meaning |\n|---|---|---|---|\n" + "".join(rows)
    for heading, place, target, setting in inner:
        yield f"\n## `{heading}`\n\n{_prose(setting.get('description') or target.get('description', ''))}\n"
        yield from _table(place, target, schema)


def _heading(place: str, setting: Node, schema: Node) -> str | None:
    """How the table is written in the file; None when the setting is no table."""
    if "properties" not in _target(setting, schema):
        return None
    if setting.get("type") == "array":
        return f"[[{place}]]"
    return f"[{place}]" if "$ref" in setting else f"[{place}.NAME]"


def _target(setting: Node, schema: Node) -> Any:
    """What a setting's items, values or reference lead to."""
    node = setting.get("items") or _values(setting) or setting
    return schema["$defs"][node["$ref"].rsplit("/", 1)[-1]] if "$ref" in node else node


def _values(setting: Node) -> Any:
    """What the free keys of a table hold."""
    patterns = setting.get("patternProperties") or {"": setting.get("additionalProperties")}
    return next(iter(patterns.values()))


def _row(name: str, setting: Node, required: bool) -> str:
    default = "**required**" if required else _default(setting.get("default"))
    return f"| `{name}` | {kind(setting)} | {default} | {_prose(setting.get('description', ''))} |\n"


def _default(value: object) -> str:
    return "–" if value is None or value in ({}, "") else f"`{json.dumps(value, ensure_ascii=False)}`"


def kind(node: Node) -> str:
    """A setting's type in words: ``integer ≥ 1``, ``"pass" or "append"``, ``list of text``."""
    if "anyOf" in node:
        return " or ".join(kind(option) for option in node["anyOf"] if option.get("type") != "null")
    if "enum" in node:
        return ", ".join(f'`"{value}"`' for value in node["enum"])
    if node.get("type") == "array":
        return f"list of {kind(node['items'])}"
    if node.get("type") == "object":
        return f"table of {kind(_values(node))}"
    return _WORDS[node.get("format") or node["type"]] + _limits(node)


_WORDS = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "`true` or `false`",
    "path": "path",
    "password": "text (secret)",
}
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _limits(node: Node) -> str:
    limits = [f"{sign} {node[key]:g}" for key, sign in _LIMITS.items() if key in node]
    return f" {', '.join(limits)}" if limits else ""


def _prose(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())
