"""``draftlane bench``."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.discovery import BackendUnreachableError
from proxy.proof.arm import PLAIN, SPECULATIVE, Arm
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
from proxy.proof.page import html_page
from proxy.proof.prompts import warm_ups
from proxy.proof.record import as_record
from proxy.proof.session import Outcome, Plan, hold
from proxy.proof.tables import show


def bench(
    plain: Annotated[str, typer.Option(help="URL of the engine that does not speculate.")],
    speculative: Annotated[str, typer.Option(help="URL of the engine that does.")],
    prompts: Annotated[Path | None, typer.Option(help="JSON lines or text; the built-in set otherwise.")] = None,
    kinds: Annotated[str, typer.Option(help="Only these kinds, separated by commas.")] = "",
    per_kind_limit: Annotated[int | None, typer.Option("--per-kind", min=1, help="At most so many of a kind.")] = None,
    concurrency: Annotated[str, typer.Option(help="Requests at once; several values share the prompts.")] = "1",
    rate: Annotated[str, typer.Option(help="Arrivals per second instead; several values share the prompts.")] = "",
    temperature: Annotated[float, typer.Option(min=0, help="The same on both arms.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1, help="The same on both arms.")] = 256,
    surface: Annotated[str, typer.Option(help="chat, or completions for models without a template.")] = "chat",
    model: Annotated[str, typer.Option(help="Model name on both arms; the first listed otherwise.")] = "",
    api_key: Annotated[str, typer.Option(envvar="DRAFTLANE_BENCH_API_KEY", help="Bearer token for both.")] = "",
    plain_header: Annotated[list[str] | None, typer.Option(help="'name: value' for the plain arm only.")] = None,
    speculative_header: Annotated[list[str] | None, typer.Option(help="The same for the other arm.")] = None,
    extra_body: Annotated[str, typer.Option(help="JSON object added to every request.")] = "{}",
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML report here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    allow_repeats: Annotated[bool, typer.Option(help="Run on repeated prompts; the report is marked.")] = False,
    anyway: Annotated[bool, typer.Option(help="Measure although the verdict will be withheld.")] = False,
    seed: Annotated[int, typer.Option(help="Of the prompt order and the resampling.")] = 1,
) -> None:
    """Compare an engine without and one with speculation on the same prompts, and refuse to be fooled.

    Exit status: 1 when the verdict is withheld, 2 for a mistake in the call, 130 after Ctrl-C (with a partial report).
    """
    # long: one line per option
    arms = [
        Arm(
            name=name,
            url=url,
            model=model,
            surface=known_surface(surface),
            headers=headers_of(headers or [], api_key),
            body={"temperature": temperature, "max_tokens": max_tokens, **object_of(extra_body)},
        )
        for name, url, headers in ((PLAIN, plain, plain_header), (SPECULATIVE, speculative, speculative_header))
    ]
    if arms[0].url == arms[1].url and arms[0].headers == arms[1].headers:
        raise typer.BadParameter("both arms are the same address with the same headers", param_hint="--speculative")
    plan = Plan(
        plain=arms[0],
        speculative=arms[1],
        prompts=chosen_prompts(prompts, kinds, per_kind_limit, seed),
        warm_ups=tuple(warm_ups()),
        loads=loads_of(concurrency, rate),
        allow_repeats=allow_repeats,
        anyway=anyway,
        seed=seed,
    )
    outcome = _held(plan)
    if report is not None:
        report.write_text(html_page(outcome), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(as_record(outcome), ensure_ascii=False))
    else:
        show(Console(), outcome)
    raise typer.Exit(INTERRUPTED if outcome.course.interrupted else int(outcome.withheld))


def _held(plan: Plan) -> Outcome:
    try:
        with Live(len(plan.prompts) * 2) as live:
            return asyncio.run(interruptible(hold(plan, live.told)))
    except BackendUnreachableError as error:
        raise typer.BadParameter(str(error), param_hint="--plain / --speculative") from error
