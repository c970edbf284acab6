"""``draftlane doctor``."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated, Any

import httpx
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.checkup import examine
from proxy.checkup.facts import Facts, Lane
from proxy.checkup.finding import SEVERITIES, Finding
from proxy.checkup.gguf import UnreadableError
from proxy.checkup.model_files import Tokenized, read_model
from proxy.checkup.visit import Visit, cut_texts, questions_for, visit
from proxy.config import Backend, from_urls, load
from proxy.discovery import BackendUnreachableError, discover
from proxy.engines.habits import field, whole
from proxy.visits import visits

_COLOURS = {"fault": "bold red", "warning": "yellow", "fine": "green", "not checked": "dim"}
_PATIENCE_SECONDS = 60.0


def doctor(
    target: Annotated[str | None, typer.Option("--target", help="The model that answers: file, folder or URL.")] = None,
    draft: Annotated[str | None, typer.Option("--draft", help="The model that drafts: file, folder or URL.")] = None,
    speculative: Annotated[str | None, typer.Option("--speculative", help="URL of a lane that speculates.")] = None,
    plain: Annotated[str | None, typer.Option("--plain", help="URL of a lane that does not.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Take the lanes from this file.")] = None,
    flags: Annotated[
        str | None, typer.Option("--flags", help="The engine's command line, to look for old flags.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Repeat the probe texts of another run.", hidden=True)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Find out whether draft and target fit, and whether the lanes are twins. Exit status 1: a fault was found."""
    if (target is None) != (draft is None):
        raise typer.BadParameter("--target and --draft belong together")
    if config is not None and (speculative or plain):
        raise typer.BadParameter("--config already names the lanes")
    backends = lanes_asked(config, speculative, plain)
    if target is None and not backends and flags is None:
        raise typer.BadParameter(
            "name something to examine: --target and --draft, --speculative and --plain, -c or --flags"
        )
    draw = SystemRandom() if seed is None else Random(seed)  # probes need fresh text, not secrets
    facts = asyncio.run(gather(target, draft, backends, flags, draw))
    findings = examine(facts)
    if as_json:
        typer.echo(json.dumps(as_object(findings), ensure_ascii=False, indent=2))
    else:
        show(findings)
    raise typer.Exit(1 if any(finding.severity == "fault" for finding in findings) else 0)


def lanes_asked(config: Path | None, speculative: str | None, plain: str | None) -> tuple[Backend, ...]:
    """The backends to examine. Raises ConfigError."""
    if config is not None:
        return load(config).backends
    if speculative or plain:
        return from_urls([speculative] if speculative else [], [plain] if plain else []).backends
    return ()


async def gather(
    target: str | None, draft: str | None, backends: tuple[Backend, ...], flags: str | None, draw: Random
) -> Facts:
    """All facts. Lanes are visited one after the other: two probes at once would disturb each other's counters."""
    pair = [await tokenized(source) for source in (target, draft) if source is not None]
    client, urls = visits(backends, _PATIENCE_SECONDS)
    questions, lanes = questions_for(draw), []
    async with client:
        for backend in backends:
            asked = Lane(backend.name, backend.lane, urls[backend.name], backend.models[0] if backend.models else "")
            with Console(stderr=True).status(f"examining {backend.name} …"):
                lanes.append(await visit(client, asked, backend.request_headers(), draw, questions))
    return Facts(pair[0] if pair else None, pair[1] if pair else None, tuple(lanes), flags)


async def tokenized(source: str) -> Tokenized:
    """One side of the pair, from disk or from a server. Raises typer.BadParameter when it cannot be read."""
    if source.startswith(("http://", "https://")):
        return await tokenized_by_server(source)
    try:
        return read_model(Path(source))
    except UnreadableError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(f"{source}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise typer.BadParameter(f"{source}: not a tokenizer: {error!r}") from error


async def tokenized_by_server(url: str) -> Tokenized:
    """What a server tells: how it cuts the probe texts, and its model card."""
    async with httpx.AsyncClient(timeout=_PATIENCE_SECONDS, trust_env=False) as client:
        try:
            found = await discover(client, url)
        except BackendUnreachableError as error:
            raise typer.BadParameter(str(error)) from error
        model = found.models[0] if found.models else "default"
        probes = await cut_texts(Visit(client, url, {}, model, found, _PATIENCE_SECONDS))
    meta = field(found.cards[0], "meta") if found.cards else None
    parameters = whole(field(meta, "n_params"))
    return Tokenized(
        url,
        rows=whole(field(meta, "n_vocab")),
        parameters=float(parameters) if parameters else None,
        context_tokens=found.max_context_tokens,
        probes=probes,
    )


def as_object(findings: list[Finding]) -> dict[str, Any]:
    """For machines."""
    counts = Counter(finding.severity for finding in findings)
    return {
        "sound": counts["fault"] == 0,
        "counts": {severity: counts[severity] for severity in SEVERITIES},
        "findings": [finding._asdict() for finding in findings],
    }


def show(findings: list[Finding]) -> None:
    """The page for people: what is wrong first, each with its fix."""
    console = Console()
    table = Table("", "check", "finding", box=SIMPLE, pad_edge=False)
    for finding in sorted(findings, key=lambda one: SEVERITIES.index(one.severity)):
        colour = _COLOURS[finding.severity]
        about = f"{finding.about}: " if finding.about else ""
        fix = f"\n[bold]fix:[/bold] {escape(finding.fix)}" if finding.fix else ""
        table.add_row(f"[{colour}]{finding.severity}[/{colour}]", finding.check, escape(about + finding.sentence) + fix)
    console.print(table)
    counts = Counter(finding.severity for finding in findings)
    told = [f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity]]
    console.print(", ".join(told) or "nothing to examine")
