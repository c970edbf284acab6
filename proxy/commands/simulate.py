"""``draftlane simulate``: a trace through modelled lanes, under the policies that run in production and some that know."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from policies.roofline import Chip, Network, together
from policies.simulation_gateway import KNOWING, PRODUCTION
from policies.simulation_workload import Asked, Drafter, Job, at_rate, jobs
from proxy import presets, traces
from proxy import simulation_runs as runs
from proxy.commands.estimate import pick, stored_as
from proxy.hardware import CHIPS, MODELS
from proxy.profiles import ProfileError
from proxy.simulate_words import as_json, show

DEFAULT_POLICIES = "break-even,fixed-ratio,least-load,all-speculative,all-plain,knows-cost"


def policies_of(text: str) -> list[str]:
    """``a,b`` as names that exist. Raises typer.BadParameter."""
    known = (*PRODUCTION, *KNOWING)
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"--policy {name!r} is not one of {', '.join(known)}")
    if not names:
        raise typer.BadParameter("--policy names no policy")
    return names


def backends_of(text: str) -> runs.Mix:
    """``plain=1,speculative=2``. Raises typer.BadParameter."""
    counts = {"plain": 0, "speculative": 0}
    for part in text.split(","):
        lane, _, number = part.strip().partition("=")
        if lane not in counts or not number.isdecimal():
            raise typer.BadParameter(f"--backends is like plain=1,speculative=1, not {text!r}")
        counts[lane] = int(number)
    if not 1 <= sum(counts.values()) <= 64:
        raise typer.BadParameter("--backends needs 1 to 64 servers in all")
    return runs.Mix(counts["plain"], counts["speculative"])


def contents_of(given: Sequence[str], drafter: Drafter, trace: Sequence[Asked]) -> dict[str, str]:
    """Kind of content per application: ``app=code`` for one, ``chat`` for the rest, by lot where nothing is said.

    Raises typer.BadParameter for an unknown kind or application.
    """
    apps = sorted({asked.app for asked in trace})
    named: dict[str, str] = {}
    rest = ""
    for word in given:
        app, equals, kind = word.rpartition("=")
        if kind not in drafter.kinds:
            raise typer.BadParameter(f"--content {kind!r} is not one of {', '.join(sorted(drafter.kinds))}")
        if equals and app not in apps:
            raise typer.BadParameter(f"--content: no application {app!r} in this trace")
        named, rest = ({**named, app: kind}, rest) if equals else (named, kind)
    return {app: named.get(app) or rest or runs.by_lot(app, drafter) for app in apps}


def rates_of(text: str | None, option: str) -> list[float]:
    """``5,10`` as positive numbers; empty for None. Raises typer.BadParameter."""
    try:
        found = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise typer.BadParameter(f"{option}: numbers with commas between, got {text!r}") from None
    if any(not 0.0 < rate < 1e6 for rate in found):
        raise typer.BadParameter(f"{option}: numbers greater than 0, got {text!r}")
    return found


def read_trace(paths: Sequence[Path], requests: int | None) -> list[Asked]:
    """The trace, or its first ``requests``. Raises typer.BadParameter with file and line."""
    try:
        trace = traces.read(paths)[:requests]
    except traces.TraceError as error:
        raise typer.BadParameter(str(error)) from None
    if len(trace) < 2:
        raise typer.BadParameter("a trace needs at least two requests")
    return trace


def simulate(  # long: one line per option
    trace: Annotated[list[Path], typer.Argument(help="Azure CSV, Mooncake JSONL, t_s CSV, or a journal.")],
    policy: Annotated[str, typer.Option("--policy", help="Names with commas between.")] = DEFAULT_POLICIES,
    rate: Annotated[str | None, typer.Option("--rate", help="Requests per second; default: as in the trace.")] = None,
    load: Annotated[str | None, typer.Option("--load", help="Instead: shares of what the servers can do.")] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="A preset of draftlane estimate.")] = "h100",
    model: Annotated[str, typer.Option("--model", help="A preset of draftlane estimate.")] = "llama-3.1-8b",
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs per server.")] = 1,
    weights: Annotated[str | None, typer.Option("--weights", help="bf16, fp8, int4 …")] = None,
    drafter: Annotated[str, typer.Option("--drafter", help=", ".join(presets.METHODS))] = "eagle-like",
    profile: Annotated[Path | None, typer.Option("--profile", help="Measured acceptance histograms (JSON).")] = None,
    content: Annotated[list[str] | None, typer.Option("--content", help="KIND, or APP=KIND; repeatable.")] = None,
    backends: Annotated[str, typer.Option("--backends", help="Servers per lane.")] = "plain=1,speculative=1",
    requests: Annotated[int | None, typer.Option("--requests", min=2, help="Only so many of the trace.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Same seed, same run.")] = 0,
    as_machine: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Replay a traffic trace through modelled servers, and say whether to split the lanes. Nothing is measured."""
    names, mix = policies_of(policy), backends_of(backends)
    network = pick(MODELS, model, "--model")
    asked = read_trace(trace, requests)
    garage = garage_of(together(pick(CHIPS, gpu, "--gpu"), gpus), network, weights, drafter, profile)
    kinds = contents_of(content or [], garage.drafter, asked)
    unit = presets.capacity(garage.base, asked) * mix.total
    rates = [*rates_of(rate, "--rate"), *(share * unit for share in rates_of(load, "--load"))]
    paced = [jobs(at_rate(asked, wanted), seed, kinds) for wanted in rates] or [jobs(asked, seed, kinds)]
    results = run_all(paced, garage, mix, names, quiet=as_machine)
    setup = {"trace": [str(path) for path in trace], "requests": len(asked), "content": kinds, "seed": seed}
    setup |= {"gpu": gpu, "gpus": gpus, "model": network.name, "hardware": garage.base._asdict()}
    setup |= {"drafter": drafter, "profile": None if profile is None else str(profile), **mix._asdict()}
    if as_machine:
        typer.echo(json.dumps(as_json(setup, results), indent=2))
    else:
        show(setup, results)


def run_all(
    paced: Sequence[Sequence[Job]], garage: runs.Garage, mix: runs.Mix, policies: Sequence[str], quiet: bool
) -> list[runs.Result]:
    """One comparison per rate."""
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        return [runs.compare(one, garage, mix, policies, shown_by(bar, len(one))) for one in paced]


def garage_of(chip: Chip, network: Network, weights: str | None, drafter: str, profile: Path | None) -> runs.Garage:
    """What servers are built from. Raises typer.BadParameter for what does not fit or cannot be read."""
    method = pick(presets.METHODS, drafter, "--drafter")
    try:
        base = presets.hardware(chip, network, stored_as(network, weights))
        drafts = presets.drafter(drafter, profile)
    except (presets.NoRoomError, ProfileError) as error:
        raise typer.BadParameter(str(error)) from None
    return runs.Garage(base, drafts, method.draft_share)


def shown_by(bar: Progress, requests: int) -> runs.Progress:
    """A progress bar that appears once two seconds have passed, a line per run."""
    begun = time.monotonic()
    lines: dict[str, TaskID] = {}

    def told(title: str, done: int) -> None:
        if title not in lines:
            lines[title] = bar.add_task(title, total=requests, visible=False)
        bar.update(lines[title], completed=done, visible=time.monotonic() - begun > 2.0)

    return told
