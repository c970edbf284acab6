"""Options that bench and tune share: texts of the command line turned into values."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import typer

from proxy.proof.arm import PATHS
from proxy.proof.course import Load
from proxy.proof.prompts import Prompt, PromptFileError, built_in, per_kind, read_file

Result = TypeVar("Result")
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


async def interruptible(work: Coroutine[object, object, Result]) -> Result:
    """The work as a task that Ctrl-C cancels once, so that it can report what it has; a second one ends it.

    Raises typer.Exit when it has nothing to report.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        return await task
    except asyncio.CancelledError:  # before anything was measured
        raise typer.Exit(INTERRUPTED) from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def chosen_prompts(path: Path | None, kinds: str, limit: int | None, seed: int) -> tuple[Prompt, ...]:
    """The prompts of a run in run order. Raises typer.BadParameter."""
    wanted = [kind.strip() for kind in kinds.split(",") if kind.strip()]
    try:
        found = built_in(wanted) if path is None else read_file(path)
    except PromptFileError as error:
        raise typer.BadParameter(str(error), param_hint="--prompts / --kinds") from error
    kept = [prompt for prompt in found if not wanted or prompt.kind in wanted]
    if not kept:
        raise typer.BadParameter(f"no prompts of kind {kinds}", param_hint="--kinds")
    return tuple(per_kind(kept, limit, seed))


def loads_of(concurrency: str, rate: str) -> tuple[Load, ...]:
    """``1,4,16`` as loads, each once. Raises typer.BadParameter."""
    try:
        if rate:
            return tuple(dict.fromkeys(Load(rate=float(part)) for part in rate.split(",")))
        return tuple(dict.fromkeys(Load(concurrency=int(part)) for part in concurrency.split(",")))
    except ValueError as error:
        raise typer.BadParameter(
            f"not a list of positive numbers ({error})", param_hint="--concurrency / --rate"
        ) from error


def headers_of(lines: list[str], api_key: str) -> dict[str, str]:
    """``name: value`` lines as a dictionary. Raises typer.BadParameter."""
    if wrong := [line for line in lines if ":" not in line]:
        raise typer.BadParameter(f"not 'name: value': {wrong[0]}")
    pairs = (line.split(":", 1) for line in lines)
    return {
        **({"authorization": f"Bearer {api_key}"} if api_key else {}),
        **{k.strip().lower(): v.strip() for k, v in pairs},
    }


def object_of(text: str) -> Mapping[str, object]:
    """A JSON object. Raises typer.BadParameter."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"not a JSON object: {error}", param_hint="--extra-body") from error


def known_surface(surface: str) -> str:
    """``chat`` or ``completions``. Raises typer.BadParameter."""
    if surface not in PATHS:
        raise typer.BadParameter(f"one of {', '.join(PATHS)}", param_hint="--surface")
    return surface
