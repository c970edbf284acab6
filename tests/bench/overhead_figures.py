"""From what the rounds reported to figures, and from figures to the table."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

Report = Mapping[str, Any]
Round = Mapping[str, Report]
"""Reports of one target by load, each with the ``cpu_seconds`` of the target; ``memory`` where it was read."""


class Figure(NamedTuple):
    """A row of the table: its name, its unit, how it is computed for one round, and what it should be."""

    name: str
    unit: str
    of: Callable[[Round, Round], float]
    """The round of the target and that of the bare backend beside it."""
    target: float | None = None
    """For draftlane."""
    against: str | None = None
    """The target is a multiple of this reference's figure."""
    digits: int = 1


def _request(mine: Round) -> float:
    crowd = mine["crowd"]
    return float(crowd["cpu_seconds"] / crowd["good"] * 1e6)


def _event(mine: Round) -> float:
    streams = mine["streams"]
    return float((streams["cpu_seconds"] * 1e6 - _request(mine) * streams["good"]) / streams["events"])


def _added(load: str, what: str) -> Callable[[Round, Round], float]:
    return lambda mine, bare: float(mine[load][what]["p50"] - bare[load][what]["p50"]) / 1e3


def _rate(one: Round) -> float:
    return float(one["streams"]["events"] / one["streams"]["seconds"])


# Short, for a terminal of 80 columns: medians; c is the number of connections that are busy at once; events are those of
# 200 streams, 100 a second each; "added" is with one client.
FIGURES = (
    Figure("CPU per request, c=64", "µs", lambda mine, _: _request(mine), 2.5, "nginx"),
    Figure("CPU per streamed event", "µs", lambda mine, _: _event(mine), 1.5, "nginx"),
    Figure(
        "CPU per 100 KB request",
        "µs",
        lambda mine, _: float(mine["large"]["cpu_seconds"]) / mine["large"]["good"] * 1e6,
        3.0,
        "nginx",
    ),
    Figure("added to first token", "ms", _added("first", "first"), 0.3, digits=2),
    Figure("added to a request", "ms", _added("alone", "latency"), 0.3, digits=2),
    Figure(
        "requests per second",
        "1/s",
        lambda mine, _: float(mine["crowd"]["good"] / mine["crowd"]["seconds"]),
        digits=0,
    ),
    Figure("events delivered", "%", lambda mine, bare: 100.0 * _rate(mine) / _rate(bare), 95.0),
    Figure("memory, idle", "MB", lambda mine, _: float(mine["memory"]["idle"]) / 1e6, digits=0),
    Figure("memory, 1,000 streams", "MB", lambda mine, _: float(mine["memory"]["held"]) / 1e6, 90.0, digits=0),
)
AT_LEAST = ("%",)
"""Units of figures that should be high."""


def summary(rounds: Sequence[Round], bare: Sequence[Round]) -> dict[str, float | None]:
    """Medians over the rounds, by name. None where nothing was measured."""
    return {figure.name: _median(figure, rounds, bare) for figure in FIGURES}


def _median(figure: Figure, rounds: Sequence[Round], bare: Sequence[Round]) -> float | None:
    values = []
    for mine, beside in zip(rounds, bare, strict=True):
        try:
            values.append(figure.of(mine, beside))
        except (KeyError, TypeError, ZeroDivisionError):  # not measured here, or nothing came back
            continue
    return median(values) if values else None


Summaries = Mapping[str, Mapping[str, float | None]]


def rows(summaries: Summaries) -> list[list[str]]:
    """The table: a header line, then a line per figure with every target, ratios beside draftlane's."""
    names = list(summaries)
    references = [name for name in names if name != "draftlane"]
    table = [["", *names, *(f"× {name}" for name in references), "target"]]
    for figure in FIGURES:
        values = {name: summaries[name][figure.name] for name in names}
        cells = [_shown(values[name], figure.digits) for name in names]
        ratios = [_ratio(values["draftlane"], values[name]) if figure.unit == "µs" else "" for name in references]
        table.append([f"{figure.name} ({figure.unit})", *cells, *ratios, _wanted(figure)])
    return table


def missed(summaries: Summaries) -> list[str]:
    """Names of the figures that are not what they should be. What could not be compared is not missed."""
    return [figure.name for figure in FIGURES if _missed(figure, summaries)]


def _missed(figure: Figure, summaries: Summaries) -> bool:
    mine = summaries["draftlane"][figure.name]
    border = figure.target
    if figure.against is not None:
        reference = summaries.get(figure.against, {}).get(figure.name)
        border = None if reference is None or figure.target is None else figure.target * reference
    if mine is None or border is None:
        return False
    return mine < border if figure.unit in AT_LEAST else mine > border


def _shown(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _ratio(mine: float | None, other: float | None) -> str:
    return f"{mine / other:.2f}" if mine and other else "–"


def _wanted(figure: Figure) -> str:
    if figure.target is None:
        return ""
    sign = "≥" if figure.unit in AT_LEAST else "≤"
    return f"{sign} {figure.target:g}{' ×' if figure.against else ''}"


def markdown(table: Sequence[Sequence[str]]) -> str:
    """The table for a page."""
    head, *body = table
    lines = [head, ["---", *["---:" for _ in head[1:]]], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
