"""``draftlane tune``."""

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.discovery import BackendUnreachableError
from proxy.proof.arm import PLAIN, Arm
from proxy.proof.depth import DEFAULT_COST
from proxy.proof.launch import EngineFailedError, filled
from proxy.proof.live import Live
from proxy.proof.options import (
    INTERRUPTED,
    chosen_prompts,
    headers_of,
    interruptible,
    known_surface,
    loads_of,
    object_of,
)
from proxy.proof.prompts import warm_ups
from proxy.proof.sweep import Candidate, Sweep, SweepPlan, sweep
from proxy.proof.sweep_report import show_sweep, sweep_page, sweep_record

DEPTHS = "4,5,6,7,8,9,10"


def tune(
    arm: Annotated[
        list[str] | None, typer.Option(help="'4=URL': a running engine and its depth (or any name).")
    ] = None,
    command: Annotated[str, typer.Option(help="Start engines with this: {k} is the depth, {port} the port.")] = "",
    depths: Annotated[str, typer.Option(help="Values of {k}, separated by commas.")] = DEPTHS,
    vary: Annotated[list[str] | None, typer.Option(help="'name=8,16': another {name} in the command.")] = None,
    plain: Annotated[str, typer.Option(help="URL of an engine that does not speculate, to compare with.")] = "",
    plain_command: Annotated[str, typer.Option(help="Or how to start one; {port} is the port.")] = "",
    prompts: Annotated[Path | None, typer.Option(help="JSON lines or text; the built-in set otherwise.")] = None,
    kinds: Annotated[str, typer.Option(help="Only these kinds, separated by commas.")] = "",
    per_kind_limit: Annotated[int | None, typer.Option("--per-kind", min=1, help="At most so many of a kind.")] = None,
    concurrency: Annotated[str, typer.Option(help="Requests at once; several values share the prompts.")] = "1",
    rate: Annotated[str, typer.Option(help="Arrivals per second instead; several values share the prompts.")] = "",
    temperature: Annotated[float, typer.Option(min=0, help="The same on all arms.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1, help="The same on all arms.")] = 256,
    surface: Annotated[str, typer.Option(help="chat, or completions for models without a template.")] = "chat",
    model: Annotated[str, typer.Option(help="Model name; the first listed otherwise.")] = "",
    api_key: Annotated[str, typer.Option(envvar="DRAFTLANE_BENCH_API_KEY", help="Bearer token for all arms.")] = "",
    extra_body: Annotated[str, typer.Option(help="JSON object added to every request.")] = "{}",
    everything: Annotated[bool, typer.Option("--all", help="Run every depth, whatever is predicted.")] = False,
    draft_cost: Annotated[
        float, typer.Option(min=0, help="Assumed cost of a draft token in plain steps, until it is measured.")
    ] = DEFAULT_COST,
    method: Annotated[str, typer.Option(help="The engine's name of the drafter, for the flag to paste.")] = "",
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds an engine may take to serve.")] = 600.0,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML report here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    allow_repeats: Annotated[bool, typer.Option(help="Run on repeated prompts; the report is marked.")] = False,
    seed: Annotated[int, typer.Option(help="Of the prompt order and the resampling.")] = 1,
) -> None:
    """Find the best number of draft tokens (or other drafter settings) and the flag that sets it.

    From the acceptance per position of the deepest arm it predicts the others and runs only those worth it. Exit
    status: 1 when the recommendation is withheld, 2 for a mistake in the call, 130 after Ctrl-C.
    """
    # long: one line per option
    plan = SweepPlan(
        candidates=candidates_of(arm or [], command, depths, vary or []),
        plain=_plain(plain, plain_command),
        prompts=chosen_prompts(prompts, kinds, per_kind_limit, seed),
        warm_ups=tuple(warm_ups()[:2]),
        template=Arm(
            name="",
            url="",
            model=model,
            surface=known_surface(surface),
            headers=headers_of([], api_key),
            body={"temperature": temperature, "max_tokens": max_tokens, **object_of(extra_body)},
        ),
        loads=loads_of(concurrency, rate),
        everything=everything,
        cost=draft_cost,
        allow_repeats=allow_repeats,
        patience_seconds=start_timeout,
        seed=seed,
    )
    outcome = _swept(plan)
    if report is not None:
        report.write_text(sweep_page(outcome, method), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(sweep_record(outcome, method), ensure_ascii=False))
    else:
        show_sweep(Console(), outcome, method)
    raise typer.Exit(INTERRUPTED if outcome.course.interrupted else int(outcome.withheld))


def _swept(plan: SweepPlan) -> Sweep:
    arms = len(plan.candidates) + (plan.plain is not None)
    try:
        with Live(len(plan.prompts) * arms) as live:
            return asyncio.run(interruptible(sweep(plan, live.told)))
    except BackendUnreachableError as error:
        raise typer.BadParameter(str(error), param_hint="--arm / --plain") from error
    except EngineFailedError as error:
        raise typer.BadParameter(str(error), param_hint="--command / --plain-command") from error


def _plain(url: str, command: str) -> Candidate | None:
    if command and "{port}" not in command:
        raise typer.BadParameter("it needs {port}", param_hint="--plain-command")
    return Candidate(PLAIN, url, command, 0) if url or command else None


def candidates_of(arms: list[str], command: str, depths: str, vary: list[str]) -> tuple[Candidate, ...]:
    """The settings to compare. Raises typer.BadParameter."""
    if bool(arms) == bool(command):
        raise typer.BadParameter("give either --arm (several) or --command", param_hint="--arm / --command")
    if arms:
        running = tuple(_running(text) for text in arms)
        if len({candidate.label for candidate in running} | {PLAIN}) <= len(running):
            raise typer.BadParameter("two arms have the same name", param_hint="--arm")
        return running
    if "{port}" not in command:
        raise typer.BadParameter("it needs {port}", param_hint="--command")
    names, choices = _varied(command, depths, vary)
    return tuple(_to_start(command, dict(zip(names, values, strict=True))) for values in product(*choices))


def _running(text: str) -> Candidate:
    label, _, url = text.partition("=")
    if not label or not url:
        raise typer.BadParameter(f"not 'depth=URL': {text}", param_hint="--arm")
    return Candidate(label, url=url, depth=int(label) if label.isdigit() else None)


def _varied(command: str, depths: str, vary: list[str]) -> tuple[list[str], list[list[str]]]:
    named = {name: values for name, _, values in (text.partition("=") for text in vary)}
    if "{k}" in command:
        named = {"k": depths, **named}
    choices = {name: [value.strip() for value in values.split(",") if value.strip()] for name, values in named.items()}
    if wrong := [name for name, values in choices.items() if not values or "{" + name + "}" not in command]:
        raise typer.BadParameter(f"no values, or no {{{wrong[0]}}} in the command", param_hint="--vary / --depths")
    if not choices:
        raise typer.BadParameter("it has neither {k} nor another {name} to vary", param_hint="--command")
    return list(choices), list(choices.values())


def _to_start(command: str, values: dict[str, str]) -> Candidate:
    only_depth = list(values) == ["k"] and values["k"].isdigit()
    label = values["k"] if only_depth else " ".join(f"{name}={value}" for name, value in values.items())
    return Candidate(label, command=filled(command, values), depth=int(label) if only_depth else None)
