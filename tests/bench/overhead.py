"""What the gateway costs, beside nginx and vllm-router and the bare backend, measured in turns on one machine.

    make bench ARGS="--rounds 5 --write"

On a machine with other work only the ratios of one run mean anything. The gateway has a core for itself and everything
else another one. CPU is the on-CPU time of the whole process family, threads that write journal and log included.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench.compiled import ROOT, compiled
from tests.bench.overhead_figures import Round, markdown, missed, rows, summary
from tests.bench.overhead_loads import Load, Report, Size, bodies, build, compiler, loads, report, start_client
from tests.bench.overhead_targets import Target, backend, cpu_seconds, installed, memory_bytes, running

PAGE = ROOT / "docs/speed.md"
BEGIN, END = "<!-- made by make bench -->", "<!-- end of what make bench made -->"
Rounds = dict[str, list[Round]]


def one_load(folder: Path, target: Target, load: Load) -> Report:
    """Run a load against a target; the client's report and the target's CPU time."""
    before = cpu_seconds(target.pid)
    told = report(start_client(folder, target.port, load, target.headers))
    return told | {"cpu_seconds": cpu_seconds(target.pid) - before}


def one_round(folder: Path, target: Target, size: Size) -> Round:
    """All loads against a target, after a little warming up."""
    one_load(folder, target, Load("small", ("-c", "8", "-n", "200")))
    return {name: one_load(folder, target, load) for name, load in loads(size).items()}


def bare_round(folder: Path, target: Target, size: Size) -> Round:
    """The loads that are compared with those of nothing in between."""
    chosen = {name: load for name, load in loads(size).items() if name in ("alone", "first", "streams")}
    return {name: one_load(folder, target, load) for name, load in chosen.items()}


def memory(folder: Path, target: Target, size: Size) -> Report:
    """Resident memory before and while streams are held open."""
    seconds = 1.0 + 2.0 * size.seconds
    assert target.pid is not None
    idle = memory_bytes(target.pid)
    client = start_client(
        folder, target.port, Load("held", ("-s", "-o", "-c", str(size.held), "-d", str(seconds))), target.headers
    )
    held = idle
    while client.poll() is None:
        held = max(held, memory_bytes(target.pid))
        try:
            client.wait(seconds / 10)
        except subprocess.TimeoutExpired:
            continue
    return {"idle": idle, "held": held, **report(client)}


def measured(
    folder: Path, names: list[str], size: Size, times: int, code: Path, progress: Progress
) -> tuple[Rounds, Rounds]:
    """Rounds of every target, and of the bare backend beside each of them; the order turns around each time."""
    task = progress.add_task("rounds", total=times * len(names) + len(names))
    with ExitStack() as stack:
        upstream = stack.enter_context(backend(folder))
        bare = Target("backend", upstream, None)
        targets = [stack.enter_context(running(name, folder, upstream, code)) for name in names]
        rounds: Rounds = {name: [] for name in names}
        beside: Rounds = {name: [] for name in names}
        for number in range(times):
            for target in targets[:: -1 if number % 2 else 1]:
                beside[target.name].append(bare_round(folder, bare, size))
                rounds[target.name].append(one_round(folder, target, size))
                progress.advance(task)
        for target in targets:
            rounds[target.name][-1] = {**rounds[target.name][-1], "memory": memory(folder, target, size)}
            progress.advance(task)
    return rounds, beside


def faults(rounds: Rounds) -> list[str]:
    """Answers that were not what they should be."""
    return [
        f"{name}, {load}: {told['bad']} failed, {told['unfinished']} without their end"
        for name, all_rounds in rounds.items()
        for one in all_rounds
        for load, told in one.items()
        if told["bad"] or told["unfinished"]
    ]


def overhead(
    rounds: Annotated[int, typer.Option(help="Times that everything is measured.")] = 3,
    seconds: Annotated[float, typer.Option(help="Of each load.")] = 2.0,
    streams: Annotated[int, typer.Option(help="Streams at once, 100 events a second each.")] = 200,
    events: Annotated[int, typer.Option(help="Events of each stream.")] = 200,
    held: Annotated[int, typer.Option(help="Streams held open for the memory figure.")] = 1000,
    references: Annotated[bool, typer.Option(help="Measure nginx and vllm-router too, where installed.")] = True,
    source: Annotated[
        bool,
        typer.Option(
            "--source", help="The gateway as a clone has it; else as the image has it, its judgement compiled."
        ),
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the table to docs/speed.md.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything that was measured, as JSON.")] = False,
) -> None:
    """Measure the gateway's overhead beside what else is installed."""
    console = Console(stderr=as_json)
    names = _names(console, references)
    all_rounds, beside = _measured(
        console, names, Size(seconds, streams, events, held), rounds, ROOT if source else compiled()
    )
    summaries = {name: summary(all_rounds[name], beside[name]) for name in names}
    wrong, short = faults(all_rounds), missed(summaries)
    table = rows(summaries)
    if as_json:
        json.dump(
            {"summary": summaries, "missed": short, "faults": wrong, "rounds": all_rounds, "bare": beside}, sys.stdout
        )
    else:
        _print(console, table, short + wrong)
    if write:
        write_page(markdown(table), rounds, source)
    raise typer.Exit(1 if wrong else 0)


def _names(console: Console, references: bool) -> list[str]:
    if compiler() is None:
        console.print("A C compiler is needed (cc or gcc): backend and client are programs in C.")
        raise typer.Exit(2)
    here = installed()
    for name in [name for name, present in here.items() if not present]:
        console.print(f"{name} is not installed: no comparison with it.")
    return [name for name, present in here.items() if present and references] + ["draftlane"]


def _measured(console: Console, names: list[str], size: Size, rounds: int, code: Path) -> tuple[Rounds, Rounds]:
    with tempfile.TemporaryDirectory() as place, Progress(console=console, transient=True) as progress:
        folder = Path(place)
        build(folder)
        bodies(folder, size)
        return measured(folder, names, size, rounds, code, progress)


def _print(console: Console, table: list[list[str]], complaints: list[str]) -> None:
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("", no_wrap=True)
    for heading in table[0][1:]:
        shown.add_column(heading, justify="right", overflow="fold")
    for line in table[1:]:
        shown.add_row(*line)
    console.print(shown)
    for complaint in complaints:
        console.print(f"not as it should be: {complaint}")


def write_page(table: str, rounds: int, source: bool) -> None:
    """Put the table where the page has its place for it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{_circumstances(rounds, source)}\n\n{END}{after}")


def _circumstances(rounds: int, source: bool) -> str:
    cores = len(os.sched_getaffinity(0))
    load: Any = os.getloadavg()[1]
    return (
        f"Medians of {rounds} rounds, draftlane {'from source' if source else 'compiled'}, {datetime.now(UTC):%Y-%m-%d}, {cores} cores of {_processor()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load average {load:.1f} at the end."
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    typer.run(overhead)
