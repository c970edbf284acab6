"""Turns what is wrong with a configuration into lines that an operator can act on, all of them at once."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

Fault = tuple[str, str]
"""(path in the file, what is wrong there)."""


def faults_of(error: ValidationError, schema: Mapping[str, Any]) -> Iterator[Fault]:
    """Every finding of pydantic as (path, message)."""
    for finding in error.errors(include_url=False):
        if finding["loc"]:
            yield _fault(finding, schema)
        else:  # raised for the whole file by ``Config`` itself, from a fault of ``cross_faults``
            path, _, message = finding["msg"].removeprefix("Value error, ").partition(": ")
            yield path, message


def _fault(finding: ErrorDetails, schema: Mapping[str, Any]) -> Fault:
    location = tuple(part for part in finding["loc"] if part != "[key]")
    path = ".".join(str(part) for part in location)
    match finding["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return path, "unexpected key" + _did_you_mean(str(location[-1]), known_keys(schema, location[:-1]))
        case "missing":
            return path, "this key is required"
        case "value_error" | "assertion_error":
            return _named_setting(path, finding["msg"].split(", ", 1)[-1], known_keys(schema, location))
        case "string_pattern_mismatch":
            return path, f"does not have the form {finding['ctx']['pattern']}"
        case _:
            return path, finding["msg"].replace("Input should be", "should be", 1) + _number(finding["input"])


def _named_setting(path: str, message: str, settings: Iterable[str]) -> Fault:
    """Policy settings check themselves as a group and begin their sentence with the setting's name."""
    first, _, rest = message.removeprefix(path.rsplit(".", 1)[-1] + ".").partition(" ")
    return (f"{path}.{first}", rest) if first in settings and not rest.startswith("and ") else (path, message)


def _number(value: object) -> str:
    """The offending value, when it cannot be a secret."""
    return f", not {value}".lower() if isinstance(value, bool | int | float) else ""


def _did_you_mean(key: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else f" (known: {', '.join(names)})" if names else ""


def known_keys(schema: Mapping[str, Any], location: Iterable[str | int]) -> frozenset[str]:
    """The keys that the table at ``location`` may have, by the JSON Schema."""
    here: Mapping[str, Any] = schema
    for part in location:
        here = _step(_resolved(here, schema), part)
    return frozenset(_resolved(here, schema).get("properties", {}))


def _step(here: Mapping[str, Any], part: str | int) -> Mapping[str, Any]:
    inner = here.get("items") if isinstance(part, int) else here.get("properties", {}).get(part)
    patterns = here.get("patternProperties") or {"": here.get("additionalProperties")}
    inner = next(iter(patterns.values())) if inner is None else inner
    return inner if isinstance(inner, Mapping) else {}


def _resolved(here: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    for option in here.get("anyOf", ()):
        if option.get("type") != "null":
            return _resolved(option, schema)
    if "$ref" in here:
        return _resolved(schema["$defs"][here["$ref"].rsplit("/", 1)[-1]], schema)
    return here


def cross_faults(data: Mapping[str, Any]) -> Iterator[Fault]:
    """What only shows when settings are seen side by side.

    Works on the raw tables, and bears any nonsense in them, so that these faults are told together with wrong types
    and misspelt keys rather than in a second round.
    """
    backends, models = _tables(data, "backends"), _tables(data, "models")
    yield from _repeated("backends", "name", backends)
    yield from _repeated("backends", "url", backends, beside="lane")
    yield from _repeated("models", "name", models)
    yield from _alias_faults(models)
    for index, backend in backends:
        yield from _exclusive(f"backends.{index}", backend, "api_key", "api_key_env", "api_key_file")
    server = data.get("server")
    if isinstance(server, Mapping):
        yield from _server_faults(server)


def _server_faults(server: Mapping[str, Any]) -> Iterator[Fault]:
    yield from _exclusive("server", server, "admin_key_sha256", "admin_key_file")
    tls = [key for key in ("tls_cert_file", "tls_key_file") if server.get(key) is not None]
    if len(tls) == 1:
        yield f"server.{tls[0]}", "tls_cert_file and tls_key_file need each other"
    if _same_port(server):
        yield "server.admin_port", "is the public port; admin_on_public_port = true serves both on one"


def _exclusive(path: str, table: Mapping[str, Any], *keys: str) -> Iterator[Fault]:
    given = [key for key in keys if table.get(key) is not None]
    if len(given) > 1:
        yield path, f"{' and '.join(given)} exclude each other"


def _tables(data: Mapping[str, Any], section: str) -> list[tuple[int, Mapping[str, Any]]]:
    entries = data.get(section)
    if not isinstance(entries, list | tuple):
        return []
    return [(index, entry) for index, entry in enumerate(entries) if isinstance(entry, Mapping)]


def _repeated(
    section: str, key: str, entries: list[tuple[int, Mapping[str, Any]]], beside: str | None = None
) -> Iterator[Fault]:
    """Equal values of ``key``; with ``beside``, only where that key is equal too (one engine may stand in both lanes)."""
    first: dict[tuple[str, object], int] = {}
    for index, entry in entries:
        value = entry.get(key)
        place = (str(value), entry.get(beside) if beside else None)
        if isinstance(value, str) and value and first.setdefault(place, index) != index:
            yield f"{section}.{index}.{key}", f"is the same as {section}.{first[place]}.{key}"


def _alias_faults(models: list[tuple[int, Mapping[str, Any]]]) -> Iterator[Fault]:
    owner: dict[str, str] = {name: f"models.{i}.name" for i, m in models if isinstance(name := m.get("name"), str)}
    for index, model in models:
        aliases = model.get("aliases")
        for place, alias in enumerate(aliases if isinstance(aliases, list | tuple) else ()):
            path = f"models.{index}.aliases.{place}"
            if isinstance(alias, str) and owner.setdefault(alias, path) != path:
                yield path, f"{alias!r} is already taken by {owner[alias]}"


def _same_port(server: Mapping[str, Any]) -> bool:
    public, admin = server.get("port", 8080), server.get("admin_port")
    hosts = {server.get("host", "127.0.0.1"), server.get("admin_host", "127.0.0.1")}
    return admin == public and admin not in (None, 0) and (len(hosts) == 1 or "0.0.0.0" in hosts)
