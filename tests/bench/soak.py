"""Does the gateway's memory stay flat? Three loads, and the curve of each.

    make bench BENCH=soak                      # 100,000 requests, 1,000 open streams again and again, a day in fast motion
    make bench BENCH=soak ARGS="--requests 5000 --streams 100 --hours 2"

The first two run against a gateway process with all features on; memory is its own (PSS). For the day the gateway runs
in this process and its clock is moved on by hand: 4,320 requests, and a heartbeat for every quarter of a second between
them. What is learnt fills tables of bounded size, so the first tenth of each curve is left out of the verdict.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from proxy.app import Application
from proxy.config import load
from proxy.serving import serving
from tests.bench.overhead_loads import Load, Size, bodies, build, compiler, report, start_client
from tests.bench.overhead_targets import KEY, Target, backend, memory_bytes, running
from tests.scripted.client import connected, post

Curve = list[float]
"""Megabytes."""
GROWTH_MB = 4.0
"""Between the first tenth and the end; below it is the noise of allocator and page cache."""
POINTS = 50
OPENINGS = 12
"""Times that all streams are opened: the allocator takes some eight to have what it needs, and then no more."""
REQUESTS_A_MINUTE = 3
HEARTBEAT_SECONDS = 0.25
HEIGHT = 8


def many_requests(folder: Path, target: Target, requests: int) -> Iterator[float]:
    """Answers in documents and in streams, in turns."""
    assert target.pid is not None
    share = max(1, requests // POINTS)
    for point in range(POINTS):
        load = (
            Load("first", ("-s", "-c", "32", "-n", str(share)))
            if point % 2
            else Load("small", ("-c", "32", "-n", str(share)))
        )
        told = report(start_client(folder, target.port, load, target.headers))
        assert told["bad"] == told["unfinished"] == 0, told
        yield memory_bytes(target.pid) / 1e6


def many_streams(folder: Path, target: Target, streams: int, openings: int, seconds: float) -> Iterator[float]:
    """Open streams, leave them in the middle, and again; memory with all open, then with none."""
    assert target.pid is not None
    for _ in range(openings):
        client = start_client(
            folder, target.port, Load("held", ("-s", "-o", "-c", str(streams), "-d", str(seconds))), target.headers
        )
        held = 0.0
        while client.poll() is None:
            held = max(held, memory_bytes(target.pid) / 1e6)
            time.sleep(min(0.2, seconds / 8))
        assert report(client)["bad"] == 0
        yield held
        yield memory_bytes(target.pid) / 1e6


class FastMotion:
    """A clock moved on by hand."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


async def _day(file: Path, hours: float, seen: Callable[[float], None]) -> None:
    async with serving(load(file)) as (app, ports, _):
        clock = FastMotion(app.gateway.now())
        app.gateway.now = clock  # time is the one thing that is not real here
        body = json.dumps({"model": "stub-model", "messages": [{"role": "user", "content": "word " * 100}]}).encode()
        request = post(body, headers=f"content-type: application/json\r\nauthorization: Bearer {KEY}\r\n")
        minutes = round(hours * 60)
        for minute in range(minutes):
            for _ in range(REQUESTS_A_MINUTE):
                async with connected(ports.public) as client:
                    assert (await client.ask(request)).status == 200
                _pass(app, clock, 60.0 / REQUESTS_A_MINUTE)
            if minute % max(1, minutes // POINTS) == 0:
                seen(_own_memory())


def _pass(app: Application, clock: FastMotion, seconds: float) -> None:
    for beat in range(round(seconds / HEARTBEAT_SECONDS)):
        clock.at += HEARTBEAT_SECONDS
        app.gateway.tick()
        if beat % 4 == 0:
            app.gateway.sweep()


def _own_memory() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def a_day(folder: Path, upstream: int, hours: float) -> Curve:
    """The curve of a day at three requests a minute."""
    file, curve = folder / "day.toml", Curve()
    file.write_text((folder / "draftlane.toml").read_text().replace("journal.jsonl", "day.jsonl"))
    with (
        Path("/dev/null").open("w") as nowhere,
        redirect_stderr(nowhere),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_day(file, hours, curve.append))
    return curve


def growth(curve: Curve) -> float:
    """From the end of the first tenth to the end, by the means of what is around both."""
    part = max(1, len(curve) // 10)
    early, late = curve[part : 3 * part] or curve[:1], curve[-2 * part :]
    if len(curve) <= OPENINGS:  # few and high points: is there still a rise in the last third?
        early, late = curve[-4:-2] or curve[:1], curve[-2:]
    return sum(late) / len(late) - sum(early) / len(early)


def plot(curve: Curve) -> str:
    """The curve in characters, from zero, so that flat looks flat."""
    top = max(curve) * 1.1
    lines = []
    for row in range(HEIGHT, 0, -1):
        border = top * (row - 0.5) / HEIGHT
        lines.append(f"{top * row / HEIGHT:7.0f} MB │" + "".join("█" if value >= border else " " for value in curve))
    return "\n".join([*lines, f"{'':10} └{'─' * len(curve)}"])


def soak(
    requests: Annotated[int, typer.Option(help="Requests of the first load.")] = 100_000,
    streams: Annotated[int, typer.Option(help="Streams open at once in the second one.")] = 1_000,
    openings: Annotated[int, typer.Option(help="Times that they are opened.")] = OPENINGS,
    seconds: Annotated[float, typer.Option(help="That they are held open.")] = 4.0,
    hours: Annotated[float, typer.Option(help="Hours in fast motion of the third one.")] = 24.0,
    as_json: Annotated[bool, typer.Option("--json", help="The curves as JSON.")] = False,
) -> None:
    """Show the memory curves; status 1 when one of them rises."""
    if compiler() is None:
        typer.echo("A C compiler is needed (cc or gcc): backend and client are programs in C.", err=True)
        raise typer.Exit(2)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        build(folder)
        bodies(folder, Size())
        upstream = stack.enter_context(backend(folder))
        with running("draftlane", folder, upstream) as target:
            curves = {f"{requests:,} requests": list(many_requests(folder, target, requests))}
            both = list(many_streams(folder, target, streams, openings, seconds))
        curves |= {f"{streams:,} open streams, {openings} times": both[::2], "between them": both[1::2]}
        curves[f"{hours:g} hours in fast motion"] = a_day(folder, upstream, hours)
    rising = [name for name, curve in curves.items() if growth(curve) > GROWTH_MB]
    if as_json:
        json.dump(
            {"curves": curves, "growth": {name: growth(curve) for name, curve in curves.items()}, "rising": rising},
            sys.stdout,
        )
    else:
        console = Console()
        for name, curve in curves.items():
            verdict = f"rises by {growth(curve):.1f} MB" if name in rising else "flat"
            console.print(f"\n{name}: {verdict} ({curve[0]:.1f} … {curve[-1]:.1f} MB)\n{plot(curve)}")
    raise typer.Exit(1 if rising else 0)


if __name__ == "__main__":
    typer.run(soak)
