"""``draftlane demo``: everything at once, small and real."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from policies.decision import PLAIN, SPECULATIVE
from proxy.app import Application
from proxy.config import Config, from_urls
from proxy.demo.lanes import Lanes, lanes
from proxy.demo.table import caption, tables
from proxy.demo.traffic import EACH, Answered, send
from proxy.outcome import Outcome
from proxy.serving import Ports, serving
from proxy.wire.nobody import APP as PROBE

COLD_REQUESTS = 3
"""Instead of 10: thirty requests are few, and the rule that is to be shown should decide most of them."""
FIRST_LOOKS = 2
"""Each application is tried on both lanes early, for the same reason."""


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the table instead of serving on.")] = False,
    port: Annotated[int, typer.Option(help="Port of the gateway; 0 for a free one.")] = 0,
) -> None:
    """Start two small engines and the gateway, send sample traffic, and show what went where and why."""
    console = Console()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            well = runner.run(_demo(console, once, port))
        except KeyboardInterrupt:
            console.print("\nstopped")
            well = True
    raise typer.Exit(0 if well else 1)


async def _demo(console: Console, once: bool, port: int) -> bool:
    async with lanes(console) as engines:
        admin_key = secrets.token_hex(8)
        async with serving(_config(engines, port, admin_key)) as (app, ports, _):
            outcomes: list[Outcome] = []
            app.farewells.append(lambda told: outcomes.extend(one for one in told if one.app != PROBE))
            answers = await _traffic(console, f"http://127.0.0.1:{ports.public}/v1", engines.model)
            _show(console, app, engines, outcomes, answers)
            if not once:
                await _stay(console, ports, engines, admin_key)
    return succeeded(answers)


def succeeded(answers: Sequence[Answered]) -> bool:
    """All requests went well, and both lanes were used."""
    lanes_used = {answer.lane for answer in answers}
    return lanes_used == {SPECULATIVE, PLAIN} and all(answer.error is None for answer in answers)


def _config(engines: Lanes, port: int, admin_key: str) -> Config:
    server = {
        "port": port,
        "admin_port": 0,
        "admin_key_sha256": sha256(admin_key.encode()).hexdigest(),
        "grace_seconds": 5,
    }
    config = from_urls([engines.speculative], [engines.plain], server)
    drafter, plain = config.backends
    lanes_told = (drafter.model_copy(update={"drafts_always": engines.simulated}), plain)
    quiet = config.log.model_copy(update={"level": "error", "decisions": False})
    verdict = replace(config.policy.verdict, first_looks=FIRST_LOOKS, min_requests=3, memory_requests=20)
    policy = replace(config.policy, cold_requests=COLD_REQUESTS, verdict=verdict)
    return config.model_copy(update={"log": quiet, "policy": policy, "backends": lanes_told})


async def _traffic(console: Console, base_url: str, model: str) -> list[Answered]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("three applications ask, through the OpenAI SDK", total=3 * EACH)
        return await send(base_url, model, lambda _: progress.advance(task))


def _show(console: Console, app: Application, engines: Lanes, outcomes: list[Outcome], answers: list[Answered]) -> None:
    console.print()
    for shown in tables(outcomes, app.showing.snapshot()["verdicts"], engines.simulated, console.width):
        console.print(shown)
    console.print(caption(outcomes))
    for answer in answers:
        if answer.error is not None:
            console.print(f"[red]failed[/red]  {answer.request.app}: {answer.error}")


async def _stay(console: Console, ports: Ports, engines: Lanes, admin_key: str) -> None:
    console.print(f"\nThe gateway goes on at [bold]http://127.0.0.1:{ports.public}/v1[/bold] (model {engines.model}).")
    console.print(
        f"Dashboard: http://127.0.0.1:{ports.admin}/dashboard (admin key {admin_key})   Ctrl-C ends everything."
    )
    await asyncio.Event().wait()
