"""From figures to the page that Prometheus reads, in its text format or OpenMetrics.

Written here and not by prometheus-client because the page is made in a thread beside the event loop: the library formats a
whole family in one go (4 µs a sample), and this pauses within (``proxy.pace``) to let the loop have the interpreter.
Its parsers check the result in the tests; its content negotiation is used as it is.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import NamedTuple

from prometheus_client.exposition import choose_encoder

from proxy.metric_table import COUNTER, HISTOGRAM, METRICS, Row
from proxy.pace import paced

Figure = float | tuple[tuple[int, ...], float]
"""A number; or a histogram's counts and the sum of what it observed."""

Figures = dict[str, dict[tuple[str, ...], Figure]]
"""Metric → label values → figure. Plain data: it may be pickled and sent to another process."""


class Page(NamedTuple):
    """What a scrape gets."""

    body: bytes
    content_type: str


def merge(all_figures: Iterable[Figures]) -> Figures:
    """The figures of several workers as one, each metric by its row's rule."""
    merged: Figures = {}
    rules = {row.name: row.merge for row in METRICS}
    for figures in all_figures:
        for name, samples in figures.items():
            into = merged.setdefault(name, {})
            for labels, figure in samples.items():
                into[labels] = _together(rules[name], into[labels], figure) if labels in into else figure
    return merged


def _together(rule: str, one: Figure, other: Figure) -> Figure:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return tuple(map(add, one[0], other[0])), one[1] + other[1]
    if rule == "first" or isinstance(one, tuple) or isinstance(other, tuple):
        return one
    return max(one, other) if rule == "max" else one + other


def page(figures: Figures, accept: str = "") -> Page:
    """Render in the format that the ``Accept`` header asks for. Call it off the loop: it sleeps in between."""
    content_type = choose_encoder(accept)[1]
    openmetrics = content_type.startswith("application/openmetrics-text")
    lines = list(paced(_lines(figures, openmetrics)))
    if openmetrics:
        lines.append("# EOF\n")
    return Page("".join(lines).encode(), content_type)


def _lines(figures: Figures, openmetrics: bool) -> Iterator[str]:
    for row in METRICS:
        samples = figures.get(row.name)
        if not samples:
            continue
        family = row.name.removesuffix("_total") if openmetrics and row.kind == COUNTER else row.name
        yield f"# HELP {family} {row.help}\n# TYPE {family} {row.kind}\n"
        for values, figure in sorted(samples.items()):
            labels = _labels(row.labels, values)
            if isinstance(figure, tuple):
                yield from _histogram(row, labels, figure)
            else:
                yield f"{row.name}{{{labels}}} {_number(figure)}\n" if labels else f"{row.name} {_number(figure)}\n"  # fmt: skip


def _histogram(row: Row, labels: str, figure: tuple[Sequence[int], float]) -> Iterator[str]:
    counts, total = figure
    before = f"{labels}," if labels else ""
    count = 0
    for bound, inside in zip(_BOUNDS[row.name], counts, strict=True):
        count += inside
        yield f'{row.name}_bucket{{{before}le="{bound}"}} {count}\n'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{row.name}_count{braces} {count}\n{row.name}_sum{braces} {_number(total)}\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    """Empty values are left out: to Prometheus the two are the same."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True) if value)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"").encode(errors="replace").decode()


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


_BOUNDS: Mapping[str, tuple[str, ...]] = {
    row.name: (*(_number(bound) for bound in row.bounds), "+Inf") for row in METRICS if row.kind == HISTOGRAM
}
