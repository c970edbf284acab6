"""A comparison for the terminal."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proxy.proof.arm import PLAIN, SPECULATIVE
from proxy.proof.compare import ALL_KINDS, DOES_NOT_PAY, PAYS, Cell, Saving, change
from proxy.proof.figures import Figures
from proxy.proof.findings import WITHHELD, Finding
from proxy.proof.intervals import Interval
from proxy.proof.session import Outcome

STYLES = {PAYS: "bold green", DOES_NOT_PAY: "bold red"}
ROWS = (
    ("latency P50", "latency_p50", "latency_p50"),
    ("latency P99", "latency_p99", "latency_p99"),
    ("first token P50", "ttft_p50", "ttft_p50"),
    ("first token P99", "ttft_p99", "ttft_p99"),
    ("per output token P50", "tpot_p50", "tpot"),
    ("per output token P99", "tpot_p99", None),
)
"""Label, field of Figures, ratio beside it."""


def show(console: Console, outcome: Outcome) -> None:
    """Print everything."""
    for finding in outcome.findings:
        console.print(finding_line(finding))
    if outcome.refused:
        console.print("\n[bold]Refused:[/] nothing was measured, because the figures would mislead.")
        return
    for cell in outcome.cells:
        if cell.kind == ALL_KINDS:
            console.print(arms_table(cell))
    if outcome.cells:
        console.print(verdict_table(outcome))
    for saving in outcome.savings:
        console.print(Text(saving_line(saving)))
    if outcome.withheld:
        console.print("[bold red]The verdict is withheld[/] because of the findings above.")


def finding_line(finding: Finding) -> Text:
    """One finding with its name."""
    style = "bold red" if finding.severity == WITHHELD else "bold yellow"
    return Text.assemble((f"{finding.severity}: {finding.name}", style), "  ", finding.sentence)


def seconds(value: float | None) -> str:
    """Seconds with a fitting unit; – when not known."""
    if value is None:
        return "–"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def ratio(interval: Interval | None) -> str:
    """A ratio with its 95 % interval; – when there is too little for one."""
    return "–" if interval is None else f"{interval.value:.2f}× [{interval.low:.2f}, {interval.high:.2f}]"


def share(figures: Figures) -> str:
    """The acceptance rate with its interval and how much was drafted."""
    rate = figures.acceptance_rate
    if rate is None:
        return "–"
    span = f" [{rate.low:.0%}, {rate.high:.0%}]" if rate.low == rate.low else ""
    return f"{rate.value:.0%}{span} of {figures.drafted_tokens:.0f} tokens"


def plain_number(value: float | None, digits: int = 1) -> str:
    """A number or –."""
    return "–" if value is None else f"{value:.{digits}f}"


def arms_table(cell: Cell) -> Table:
    """Both arms at one load, all kinds together."""
    table = Table(title=f"{cell.load}, all kinds", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in (PLAIN, SPECULATIVE, "gain"):
        table.add_column(name, justify="right")
    one, other = cell.figures[PLAIN], cell.figures[SPECULATIVE]
    for label, key, compared in ROWS:
        beside = ratio(cell.ratios.get(compared)) if compared else ""
        table.add_row(label, seconds(getattr(one, key)), seconds(getattr(other, key)), beside)
    table.add_row("time at equal length", "", "", ratio(cell.ratios["equal_length"]), style="bold")
    speeds = (plain_number(figures.tokens_per_second) for figures in (one, other))
    table.add_row("output tokens/s", *speeds, ratio(cell.ratios["tokens_per_second"]))
    for row in _last_rows(one, other):
        table.add_row(*row)
    return table


def _last_rows(one: Figures, other: Figures) -> Iterable[tuple[str, ...]]:
    yield "throughput, tokens/s", plain_number(one.throughput), plain_number(other.throughput), ""
    yield "in flight, measured", plain_number(one.in_flight), plain_number(other.in_flight), ""
    yield "tokens per step", *(_steps(figures) for figures in (one, other)), ""
    yield "acceptance rate", share(one), share(other), ""
    yield "acceptance length", *(plain_number(f.acceptance_length, 2) for f in (one, other)), ""
    yield "accepted at position 1, 2 …", *(positions(f.per_position) for f in (one, other)), ""
    yield "requests (failed)", *(f"{f.requests} ({f.failed})" for f in (one, other)), ""


def _steps(figures: Figures) -> str:
    return plain_number(figures.tokens_per_step.value if figures.tokens_per_step else None, 2)


def positions(shares: tuple[float, ...]) -> str:
    """The first six positions."""
    return " ".join(f"{value:.0%}" for value in shares[:6]) + (" …" if len(shares) > 6 else "") or "–"


def verdict_table(outcome: Outcome) -> RenderableType:
    """The verdict per load and kind."""
    table = Table(
        title="Does speculation pay? (gain: plain ÷ speculative at equal answer length)",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("kind", no_wrap=True)
    for column in ("n", "gain", "tokens/step", "accepted"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    many = len(outcome.plan.loads) > 1
    for cell in outcome.cells:
        figures = cell.figures[SPECULATIVE]
        equal = cell.ratios["equal_length"]
        table.add_row(
            escape(f"{cell.kind}, {cell.load}" if many else cell.kind),
            str(equal.pairs if equal else figures.requests),
            ratio(equal),
            _steps(figures),
            "–" if figures.acceptance_rate is None else f"{figures.acceptance_rate.value:.0%}",
            verdict_text(cell, outcome),
            style="bold" if cell.kind == ALL_KINDS else "",
        )
    return Group(table, *(Text(f"{c.load}: {c.sentence}") for c in outcome.cells if c.kind == ALL_KINDS))


def verdict_text(cell: Cell, outcome: Outcome) -> Text:
    """The verdict, withheld or marked where there are findings."""
    if outcome.withheld:
        return Text("withheld", style="bold red")
    mark = " (marked)" if outcome.findings and cell.verdict in STYLES else ""
    return Text(cell.verdict + mark, style=STYLES.get(cell.verdict, ""))


def saving_line(saving: Saving) -> str:
    """What it would save; a difference that may be chance is called so."""
    of = f"of {saving.plain_seconds:,.0f} s of waiting per 1,000 requests"
    interval = saving.interval
    total = "" if interval is None else f"total speed {change(interval.low)} to {change(interval.high)}"
    if interval is None or interval.low <= 1 <= interval.high:
        words = f"{saving.load}: speculation for everything shows no saving {of}; {total}"
    elif saving.saved_if_all >= 0:
        words = f"{saving.load}: speculation for everything saves {saving.saved_if_all:,.0f} s {of} ({total})"
    else:
        words = (
            f"{saving.load}: speculation for everything adds {-saving.saved_if_all:,.0f} s to every {of[3:]} ({total})"
        )
    if saving.routed_kinds:
        words += f"; only for what pays ({', '.join(saving.routed_kinds)}) it saves {saving.saved_if_routed:,.0f} s"
    return words + "."
