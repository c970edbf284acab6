"""Two engines for the demonstration: real ones where the wheel and the weights are there, else simulated ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from proxy import llama
from proxy.simulated.character import Character
from proxy.simulated.running import simulated


class Lanes(NamedTuple):
    """Where the engines listen, and what they are."""

    speculative: str
    plain: str
    model: str
    simulated: bool


@contextlib.asynccontextmanager
async def lanes(console: Console) -> AsyncIterator[Lanes]:
    """Both engines, for as long as the block lasts."""
    try:
        file = _weights(console)
    except llama.EngineUnavailable as error:
        console.print(f"[yellow]No real engine here: {error}[/yellow]")
        console.print(
            "[yellow]Going on with SIMULATED engines: their text is made up, their speeds are modelled.[/yellow]"
        )
        async with _modelled() as found:
            yield found
        return
    tuning = llama.Tuning(context_tokens=5120, slots=2, threads=1)
    with console.status("starting two llama.cpp engines (gemma-3-270m, one plain, one with n-gram drafts) …"):
        engines = await asyncio.gather(
            asyncio.to_thread(llama.start, replace(tuning, kind="ngram-mod"), file),
            asyncio.to_thread(llama.start, tuning, file),
        )
    try:
        yield Lanes(engines[0].url, engines[1].url, llama.MODEL, simulated=False)
    finally:
        for engine in engines:
            await asyncio.to_thread(engine.stop)


def _weights(console: Console) -> Path:
    bar = (TextColumn("[progress.description]{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*bar, console=console, transient=True) as progress:
        task = progress.add_task("checking the weights (sha256)", total=None)
        return llama.weights(lambda done, total: progress.update(task, completed=done, total=total))


@contextlib.asynccontextmanager
async def _modelled() -> AsyncIterator[Lanes]:
    base = Character(step_ms=12.0)
    async with simulated(replace(base, depth=4)) as speculative, simulated(replace(base, seed=1)) as plain:
        yield Lanes(speculative, plain, base.model, simulated=True)
