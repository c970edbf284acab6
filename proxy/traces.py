"""Reads traffic traces for ``draftlane simulate``.

The first line tells the format:

- ``TIMESTAMP,ContextTokens,GeneratedTokens``: Azure's LLM inference traces (2023 and 2024);
- ``t_s,client,input_tokens,output_tokens``: seconds and a tenant, ``client`` may be missing;
- ``{"timestamp": ms, "input_length": …, "output_length": …}``: Mooncake's JSON lines;
- ``["Journal", …]``: a journal of this gateway (only requests that finished count).

Requests without any output are left out: they were cancelled or refused, and nothing is known of them.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from policies.events import Arrived, Finished
from policies.simulation_workload import Asked
from proxy import journal


class TraceError(ValueError):
    """A trace that cannot be read; says which file and line."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(f"{path}:{line}: {why}")
        self.path = path
        self.line = line


Line = TypeVar("Line")

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TENANTS = ("t_s", "input_tokens", "output_tokens")


def read(paths: Sequence[Path]) -> list[Asked]:
    """All requests of these files, laid over each other with their first requests at time 0, in order of time.

    The application is the file's stem, or stem/client where the trace names one. Raises ``TraceError``, and
    ``OSError`` for a file that cannot be opened.
    """
    merged: list[Asked] = []
    for path in paths:
        requests = sorted(_read(path), key=lambda asked: asked.at)
        if not requests:
            raise TraceError(path, 1, "no request with any output in this trace")
        start = requests[0].at
        merged += [asked._replace(at=asked.at - start) for asked in requests]
    return sorted(merged, key=lambda asked: asked.at)


def _read(path: Path) -> Iterator[Asked]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline().strip()
    if first.startswith("["):
        return _journal(path)
    if first.startswith("{"):
        return _mooncake(path)
    header = tuple(word.strip() for word in first.split(","))
    if set(AZURE) <= set(header):
        return _table(path, _azure)
    if set(TENANTS) <= set(header):
        return _table(path, _tenant)
    raise TraceError(
        path,
        1,
        f"not a trace: expected the columns {','.join(AZURE)} or t_s,client,input_tokens,output_tokens, "
        "Mooncake's JSON lines, or a draftlane journal",
    )


def _table(path: Path, row_of: Callable[[str, dict[str, str]], Asked]) -> Iterator[Asked]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        try:
            yield from _checked(
                path, ((rows.line_num, _whole(row)) for row in rows), lambda row: row_of(path.stem, row)
            )
        except csv.Error as error:
            raise TraceError(path, rows.line_num, str(error)) from None


def _whole(row: dict[str | None, str | None]) -> dict[str, str]:
    """The named cells that are there; a missing one is reported when it is looked for."""
    return {name.strip(): cell for name, cell in row.items() if name is not None and isinstance(cell, str)}


def _checked(path: Path, lines: Iterable[tuple[int, Line]], read_line: Callable[[Line], Asked]) -> Iterator[Asked]:
    """Requests with output of a file; what is wrong with a line is said with its number."""
    for number, line in lines:
        try:
            asked = read_line(line)
        except KeyError as error:
            raise TraceError(path, number, f"{error.args[0]} is missing") from None
        except (ValueError, TypeError, OverflowError) as error:
            raise TraceError(path, number, str(error)) from None
        if asked.output_tokens > 0:
            yield asked


def _azure(stem: str, row: dict[str, str]) -> Asked:
    at = datetime.fromisoformat(row["TIMESTAMP"].strip())
    seconds = (at.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()  # differences only
    return Asked(seconds, stem, _tokens(row["ContextTokens"]), _tokens(row["GeneratedTokens"]))


def _tenant(stem: str, row: dict[str, str]) -> Asked:
    client = row.get("client", "").strip()
    app = f"{stem}/{client}" if client else stem
    return Asked(_seconds(row["t_s"]), app, _tokens(row["input_tokens"]), _tokens(row["output_tokens"]))


def _mooncake(path: Path) -> Iterator[Asked]:
    def of(line: bytes) -> Asked:
        entry = msgspec.json.decode(line)
        if not isinstance(entry, dict):
            raise ValueError("not a JSON object")
        input_tokens, output_tokens = _tokens(entry["input_length"]), _tokens(entry["output_length"])
        return Asked(_seconds(entry["timestamp"]) / 1000.0, path.stem, input_tokens, output_tokens)

    with path.open("rb") as file:
        yield from _checked(path, ((number, line) for number, line in enumerate(file, 1) if line.strip()), of)


def _journal(path: Path) -> Iterator[Asked]:
    arrived: dict[str, Arrived] = {}
    try:
        for event in journal.read([path]):
            if isinstance(event, Arrived):
                arrived.setdefault(event.id, event)
            elif isinstance(event, Finished) and event.completion_tokens:
                start = arrived.pop(event.id, None)
                prompt = event.prompt_tokens or (start.prompt_tokens if start else None)
                if start is not None and prompt is not None:
                    yield Asked(start.at, start.app, prompt, event.completion_tokens)
    except journal.JournalError as error:
        raise TraceError(error.path, error.line, str(error).removeprefix(f"{error.path}:{error.line}: ")) from None


def _seconds(value: object) -> float:
    seconds = float(str(value))
    if not -1e12 < seconds < 1e12:
        raise ValueError(f"a time must be finite, not {value}")
    return seconds


def _tokens(value: object) -> int:
    tokens = int(str(value).strip())
    if not 0 <= tokens <= 10**8:
        raise ValueError(f"a number of tokens must lie between 0 and 100,000,000, not {value}")
    return tokens
