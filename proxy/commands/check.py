"""``draftlane check``."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import httpx
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.config import Backend, Config, load
from proxy.discovery import BackendUnreachableError, discover
from proxy.engines.base import Discovered
from proxy.visits import visits


class Asked(NamedTuple):
    """A configured backend, and what it said of itself or why it said nothing."""

    backend: Backend
    found: Discovered | None
    fault: str = ""


def check(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")],
    live: Annotated[bool, typer.Option("--live", help="Ask every backend what it is, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Check a configuration file, and with --live that the backends are what the file says.

    Faults of the file end with exit status 2; backends that do not answer, or are in the wrong lane, with 1. Lanes that
    are not twins are warned of.
    """
    sound = load(config)
    asked = asyncio.run(ask(sound)) if live else []
    wrong, odd = list(faults(asked)), list(differences(asked))
    if as_json:
        typer.echo(json.dumps(_told(config, sound, asked, wrong, odd), ensure_ascii=False))
    else:
        _show(Console(), config, sound, asked, wrong, odd)
    raise typer.Exit(1 if wrong else 0)


async def ask(config: Config) -> list[Asked]:
    """What every backend says of itself, all asked at once."""
    client, urls = visits(config.backends, config.watch.patience_seconds)
    async with client:
        return await asyncio.gather(
            *(
                _ask_one(client, backend, urls[backend.name], config.watch.discovery_seconds)
                for backend in config.backends
            )
        )


async def _ask_one(client: httpx.AsyncClient, backend: Backend, url: str, limit_seconds: float) -> Asked:
    try:
        return Asked(backend, await discover(client, url, backend.request_headers(), limit_seconds))
    except BackendUnreachableError as error:
        return Asked(backend, None, error.cause)


def faults(asked: list[Asked]) -> Iterator[str]:
    """What keeps the fleet from working as configured."""
    for backend, found, fault in asked:
        if found is None:
            yield f"{backend.name}: no answer: {fault}"
        elif found.speculative is True and backend.lane == "plain":
            yield f"{backend.name}: it speculates, but is in the plain lane"
        elif found.speculative is False and backend.lane == "speculative":
            yield f"{backend.name}: it does not speculate, but is in the speculative lane"
        else:
            missing = [model for model in backend.models if backend.renames.get(model, model) not in found.models]
            if missing and found.models:
                yield f"{backend.name}: it does not serve {', '.join(missing)}"


def differences(asked: list[Asked]) -> Iterator[str]:
    """Where the lanes are not twins, so that a lane would be chosen for more than its speed."""
    lanes = {lane: [a for a in asked if a.backend.lane == lane and a.found] for lane in ("speculative", "plain")}
    if not all(lanes.values()):
        return
    models = {lane: {m for a in lanes[lane] for m in _models(a)} for lane in lanes}
    for lane, other in (("speculative", "plain"), ("plain", "speculative")):
        if only := sorted(models[lane] - models[other]):
            yield f"only the {lane} lane serves {', '.join(only)}: such requests have no choice"
    facts = {"context lengths": "max_context_tokens", "engines": "engine", "engine versions": "version"}
    for what, field in facts.items():
        seen = {lane: {getattr(a.found, field) for a in lanes[lane]} - {None} for lane in lanes}
        if all(seen.values()) and seen["speculative"] != seen["plain"]:
            yield f"the lanes have different {what}: " + " against ".join(
                f"{', '.join(map(str, sorted(seen[lane])))} ({lane})" for lane in lanes
            )
    for backend, found, _ in asked:
        if found is not None and not found.metrics:
            yield f"{backend.name}: no metrics page; acceptance is learnt from its answers alone"


def _models(asked: Asked) -> Iterator[str]:
    """Its models under the names used here."""
    here = {there: name for name, there in asked.backend.renames.items()}
    for model in asked.backend.models or (asked.found.models if asked.found else ()):
        yield here.get(model, model)


def _told(path: Path, config: Config, asked: list[Asked], wrong: list[str], odd: list[str]) -> Mapping[str, object]:
    found = {a.backend.name: a.found and a.found._asdict() | {"cards": len(a.found.cards)} for a in asked}
    backends = [{"name": b.name, "lane": b.lane, "url": b.url, "found": found.get(b.name)} for b in config.backends]
    return {"file": str(path), "ok": not wrong, "backends": backends, "faults": wrong, "warnings": odd}


def _show(console: Console, path: Path, config: Config, asked: list[Asked], wrong: list[str], odd: list[str]) -> None:
    lanes = [sum(b.lane == lane for b in config.backends) for lane in ("speculative", "plain")]
    console.print(
        f"{escape(str(path))}: sound. {lanes[0]} speculative and {lanes[1]} plain, policy {config.policy.name}."
    )
    if asked:
        console.print(_table(asked))
    for fault in wrong:
        console.print(f"[red]fault[/]    {escape(fault)}", soft_wrap=True)
    for difference in odd:
        console.print(f"[yellow]warning[/]  {escape(difference)}", soft_wrap=True)


def _table(asked: list[Asked]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("Backend", "Lane", "Engine", "Models", "Context", "Drafts", "Runs", "Metrics"):
        table.add_column(heading, no_wrap=heading not in ("Engine", "Models"), overflow="fold", min_width=len(heading))
    for backend, found, _ in asked:
        row = ("no answer",) if found is None else _row(found)
        table.add_row(escape(backend.name), backend.lane, *row)
    return table


def _row(found: Discovered) -> tuple[str, ...]:
    drafts = {True: found.method or "yes", False: "no", None: "?"}[found.speculative]
    if found.depth:
        drafts += f" ×{found.depth}"
    engine = f"{found.engine} {found.version or ''}".strip()
    context, runs = (
        f"{value:,}" if value is not None else "–" for value in (found.max_context_tokens, found.max_requests)
    )
    return escape(engine), escape(", ".join(found.models)), context, escape(drafts), runs, _yes(found.metrics)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
