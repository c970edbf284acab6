"""A simulation for readers, and the same figures for machines."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from policies.simulation_figures import Figures, FleetVerdict, Spread
from proxy.simulation_runs import Result

FLEETS = {
    "split": "split: servers of both lanes, each request where it costs least",
    "all-speculative": "all-speculative: let every server speculate",
    "all-plain": "all-plain: do without speculation",
}


def as_json(setup: Mapping[str, Any], results: list[Result]) -> dict[str, Any]:
    """Everything the runs found; seconds."""
    return {"simulated": True, **setup, "runs": [_run(result) for result in results]}


def _run(result: Result) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "rate": result.rate,
        "policies": {name: {**_figures(one), "regret": result.regret[name]} for name, one in result.policies.items()},
        "fleets": {
            name: {**_figures(one), "worse_than_best": verdict.against[name]} for name, one in result.fleets.items()
        },
        "verdict": {"fleet": verdict.best, "clear": verdict.clear},
    }


def _figures(one: Figures) -> dict[str, Any]:
    return {key: value._asdict() if isinstance(value, Spread) else value for key, value in one._asdict().items()}


def show(setup: Mapping[str, Any], results: list[Result]) -> None:
    """Tables and a verdict per rate."""
    console = Console()
    console.print("[bold]Simulated[/bold]: modelled servers, no GPU was used.")
    console.print(
        f"{setup['requests']:,} requests · {setup['model']} on {setup['gpus']} × {setup['gpu']} per server · "
        f"{setup['plain']} plain, {setup['speculative']} speculative ({setup['drafter']}) · seed {setup['seed']}"
    )
    for result in results:
        console.print(_table(f"{result.rate:.3g} requests/s", result.policies, result.regret, "policy"))
        console.print(_table("the same number of servers, other lanes", result.fleets, result.verdict.against, "fleet"))
        console.print(says(result.verdict), "\n")


def _table(title: str, rows: Mapping[str, Figures], worse: Mapping[str, float], what: str) -> Table:
    table = Table(
        title=title, box=None, title_justify="left", pad_edge=False, padding=(0, 0, 0, 1), header_style="bold"
    )
    table.add_column(what, no_wrap=True)
    for column in ("mean s", "P50", "P99", "worse", "TTFT 50", "99", "ms/tok", "tok/s", "spec."):
        table.add_column(column, justify="right", no_wrap=True, vertical="bottom")
    for name, one in sorted(rows.items(), key=lambda row: worse[row[0]]):
        table.add_row(
            name,
            f"{one.latency.mean:.3f}",
            f"{one.latency.p50:.2f}",
            f"{one.latency.p99:.2f}",
            "best" if worse[name] == 0.0 else f"{worse[name]:+.1%}",
            f"{one.ttft.p50:.3f}",
            f"{one.ttft.p99:.2f}",
            f"{1e3 * one.tpot.p50:.1f}",
            f"{one.tokens_per_second:,.0f}",
            f"{one.speculative_share:.0%}",
        )
    return table


def says(verdict: FleetVerdict) -> str:
    """The verdict in a sentence."""
    ranked = sorted(verdict.against.items(), key=lambda row: row[1])
    if not verdict.clear:
        near = [name for name, worse in ranked if worse < 0.02]
        return f"Verdict: no clear difference between {' and '.join(near)} (under 2 % in mean latency)."
    others = ", ".join(f"{name} is {worse:.0%} slower" for name, worse in ranked[1:])
    return f"Verdict: {FLEETS[verdict.best]} ({others})."
