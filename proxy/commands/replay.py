"""``draftlane replay``."""

import json
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from policies.decision import Decision, Verdict
from policies.replay import Change, compare
from policies.replay import replay as again
from policies.settings import PolicySettings
from proxy.journal import JournalError
from proxy.replaying import Life, lives, policy_of

SHOWN = 10
"""Changed requests that are listed."""
Journal = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A journal; files rotated away from it too.")
]
Was = Annotated[
    Path | None, typer.Option("--was", help="Configuration it was written under; else the settings in the journal.")
]


def replay(
    journal: Journal,
    other: Annotated[Path | None, typer.Option("--config", "-c", help="Try this configuration's policy.")] = None,
    was: Was = None,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Print every decision, one JSON array a line.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Take the decisions of a journal again, or see what other settings would have decided.

    Exit status 1 when the journal holds decisions and they came out differently. With -c the answer is of first order: other
    decisions, given what then really happened.
    """
    console = Console()
    try:
        if other is not None:
            _try(journal, policy_of(was), policy_of(other) or PolicySettings(), as_json, console)
        else:
            _repeat(journal, policy_of(was), decisions, as_json, console)
    except JournalError as error:
        raise typer.BadParameter(str(error), param_hint="JOURNAL") from error


@dataclass
class Again:
    """What came of repeating."""

    decisions: int = 0
    written: int = 0
    """Decisions that the journal holds itself."""
    different: list[str] = field(default_factory=list)
    """Ids whose decision came out differently."""
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By (lane, class, reason)."""
    doubts: dict[str, None] = field(default_factory=dict)
    digest: str = ""
    """SHA-256 over all decisions as JSON lines: equal digests are equal decisions, byte for byte."""


def _repeat(journal: Path, was: PolicySettings | None, decisions: bool, as_json: bool, console: Console) -> None:
    result, digest = Again(), sha256()
    with console.status("replaying …"):
        for verdict, line in _decided(journal, was, result):
            digest.update(line)
            result.reasons[_kind(verdict)] += 1
            result.decisions += 1
            if decisions:
                sys.stdout.write(line.decode())
    result.digest = digest.hexdigest()
    if as_json:
        typer.echo(json.dumps(_told(result), ensure_ascii=False))
    elif not decisions:
        _show(console, result)
    raise typer.Exit(1 if result.different else 0)


def _decided(journal: Path, was: PolicySettings | None, result: Again) -> Iterator[tuple[Verdict, bytes]]:
    """Every decision again, with its line; compares with the ones in the journal on the way."""
    for life in lives(journal):
        waiting: defaultdict[str, deque[bytes]] = defaultdict(deque)
        for _, verdict in again(life.events(), life.settings(was)):
            line = _line(verdict)
            waiting[verdict.id].append(line)
            yield verdict, line
            _compare(life, waiting, result)
        _compare(life, waiting, result)
        result.doubts |= dict.fromkeys(life.doubts(was))


def _compare(life: Life, waiting: dict[str, deque[bytes]], result: Again) -> None:
    """A decision is written after its request, so it is read when the next one is asked for."""
    for verdict in life.verdicts:
        result.written += 1
        expected = waiting.get(verdict.id)
        if not expected or expected.popleft() != _line(verdict):
            result.different.append(verdict.id)
    life.verdicts.clear()


def _line(verdict: Verdict) -> bytes:
    return msgspec.json.encode((type(verdict).__name__, *verdict)) + b"\n"


def _kind(verdict: Verdict) -> tuple[str, str, str]:
    if isinstance(verdict, Decision):
        return verdict.lane, verdict.workload, verdict.reason
    return "–", "–", type(verdict).__name__


def _told(result: Again) -> dict[str, object]:
    reasons = [
        {"lane": lane, "class": workload, "reason": reason, "requests": count}
        for (lane, workload, reason), count in result.reasons.most_common()
    ]
    return {
        "decisions": result.decisions,
        "written": result.written,
        "different": result.different,
        "sha256": result.digest,
        "by": reasons,
        "doubts": list(result.doubts),
    }


def _show(console: Console, result: Again) -> None:
    table = Table("Lane", "Class", "Reason", box=None)
    table.add_column("Requests", justify="right")
    for (lane, workload, reason), count in result.reasons.most_common():
        table.add_row(lane, workload, reason, f"{count:,}")
    console.print(table)
    console.print(f"{result.decisions:,} decisions, sha256 {result.digest}", soft_wrap=True)
    if result.different:
        console.print(f"[red]{len(result.different):,} of {result.written:,} written ones came out differently[/]:")
        console.print(escape(", ".join(result.different[:SHOWN])), soft_wrap=True)
    elif result.written:
        console.print(f"all {result.written:,} written ones are the same, byte for byte")
    _show_doubts(console, result.doubts)


def _show_doubts(console: Console, doubts: dict[str, None]) -> None:
    for doubt in doubts:
        console.print(f"[yellow]note[/]  {escape(doubt)}", soft_wrap=True)


@dataclass
class Tried:
    """What other settings would have changed."""

    requests: int = 0
    changed: int = 0
    moves: Counter[str] = field(default_factory=Counter)
    examples: list[Change] = field(default_factory=list)
    doubts: dict[str, None] = field(default_factory=dict)


def _try(journal: Path, was: PolicySettings | None, other: PolicySettings, as_json: bool, console: Console) -> None:
    tried = Tried()
    with console.status("replaying under both …"):
        for life in lives(journal):
            found = compare(life.events(), life.settings(was), other, keep=SHOWN)
            tried.requests += found.requests
            tried.changed += found.changed_requests
            tried.moves.update(dict(found.lanes))
            tried.examples += found.changed[: SHOWN - len(tried.examples)]
            tried.doubts |= dict.fromkeys(life.doubts(was))
    if as_json:
        typer.echo(json.dumps(_tried(tried), ensure_ascii=False))
    else:
        _show_tried(console, tried)


def _tried(tried: Tried) -> dict[str, object]:
    examples = [
        {
            "id": change.arrived.id,
            "app": change.arrived.app,
            "before": _place(change.before),
            "after": _place(change.after),
        }
        for change in tried.examples
    ]
    counts = {"requests": tried.requests, "changed": tried.changed, "moves": dict(tried.moves)}
    return counts | {"examples": examples, "doubts": list(tried.doubts)}


def _place(verdict: Verdict) -> dict[str, str]:
    lane, _, reason = _kind(verdict)
    return {"backend": verdict.backend if isinstance(verdict, Decision) else "", "lane": lane, "reason": reason}


def _show_tried(console: Console, tried: Tried) -> None:
    share = tried.changed / tried.requests if tried.requests else 0.0
    console.print(f"{tried.changed:,} of {tried.requests:,} requests would have gone elsewhere ({share:.1%})")
    for move, count in tried.moves.most_common():
        console.print(f"  {count:>8,}  {move}")
    if tried.examples:
        table = Table("Request", "Application", "Was", "Because", "Would be", "Because", box=None)
        for change in tried.examples:
            before, after = _place(change.before), _place(change.after)
            row = (change.arrived.id, change.arrived.app, before["backend"], before["reason"])
            table.add_row(*map(escape, (*row, after["backend"], after["reason"])))
        console.print(table)
    _show_doubts(console, tried.doubts)
