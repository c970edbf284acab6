"""Plots as SVG text, without a plotting library: five shapes are all a report needs."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 44


class Axis(NamedTuple):
    """Maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value; values outside stop at the edge."""
        low, high, v = (math.log(max(x, 1e-9)) if self.log else x for x in (self.low, self.high, value))
        part = (v - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * min(1.0, max(0.0, part))

    def ticks(self) -> list[float]:
        """Round values inside the axis."""
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)


class Series(NamedTuple):
    """Points of one colour class (``plain``, ``speculative``, ``arm-3`` …) with a name for the legend."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """One row of a forest plot."""

    label: str
    value: float
    low: float
    high: float
    colour: str
    note: str = ""
    strong: bool = False


def _linear_ticks(low: float, high: float) -> list[float]:
    if high <= low:
        return [low]
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [round(step * i, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [10.0**d * m for d in decades for m in (1, 2, 5) if low <= 10.0**d * m <= high]
    return ticks if len(ticks) > 1 else _linear_ticks(low, high)


def _x_axis(low: float, high: float, log: bool = False, left: float = LEFT) -> Axis:
    return Axis(low, high, left, WIDTH - RIGHT, log)


def _y_axis(low: float, high: float) -> Axis:
    return Axis(low, high, HEIGHT - BOTTOM, TOP)


def _svg(parts: Iterable[str], title: str, height: float = HEIGHT) -> str:
    inside = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">{inside}</svg>'


def _text(x: float, y: float, words: str, anchor: str = "middle", style: str = "tick") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _frame(x: Axis, y: Axis, x_label: str, y_label: str, y_percent: bool = False) -> list[str]:
    parts = []
    for tick in y.ticks():
        words = f"{tick:.0%}" if y_percent else f"{tick:g}"
        parts += [
            _line(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick), "grid"),
            _text(LEFT - 7, y.at(tick) + 4, words, "end"),
        ]
    for tick in x.ticks():
        parts += [
            _line(x.at(tick), y.start, x.at(tick), y.start + 4, "axis"),
            _text(x.at(tick), y.start + 18, f"{tick:g}"),
        ]
    parts += [_line(LEFT, y.start, WIDTH - RIGHT, y.start, "axis")]
    parts += [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, style="label")]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'<text class="label" transform="translate(14 {middle:g}) rotate(-90)" text-anchor="middle">'
    return [*parts, f"{turned}{escape(y_label)}</text>"]


def _path(points: Iterable[tuple[float, float]], style: str) -> str:
    return f'<polyline class="{style}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def distribution(series: Sequence[Series], x_label: str) -> str:
    """Share of requests that took at most x; ``points`` are (value, anything), on a logarithmic axis."""
    values = [value for one in series for value, _ in one.points if value > 0]
    if not values:
        return ""
    x, y = _x_axis(min(values) * 0.95, max(values) * 1.05, log=True), _y_axis(0, 1)
    parts = _frame(x, y, x_label, "share of requests", y_percent=True)
    for one in series:
        ordered = sorted(value for value, _ in one.points if value > 0)
        corners = [(x.low, 0.0)]
        for rank, value in enumerate(ordered, 1):
            corners += [(value, corners[-1][1]), (value, rank / len(ordered))]
        parts.append(_path(((x.at(v), y.at(s)) for v, s in [*corners, (x.high, 1.0)]), f"curve {one.colour}"))
    return _svg(parts, "Distribution: " + x_label)


def scatter(series: Sequence[Series], trends: Sequence[Series], x_label: str, y_label: str) -> str:
    """Points, with straight trend lines over them."""
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    x = _x_axis(min(p[0] for p in points), max(p[0] for p in points))
    y = _y_axis(0, 1.08 * max(p[1] for p in points))
    parts = _frame(x, y, x_label, y_label)
    for one in series:
        parts += [
            f'<circle class="dot {one.colour}" cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2.6"/>' for a, b in one.points
        ]
    parts += [_path(((x.at(a), y.at(b)) for a, b in one.points), f"curve {one.colour}") for one in trends]
    return _svg(parts, f"{y_label} against {x_label}")


class Span(NamedTuple):
    """An interval at x."""

    x: float
    low: float
    high: float
    colour: str


def lines(
    series: Sequence[Series], x_label: str, y_label: str, y_percent: bool = False, spans: Sequence[Span] = ()
) -> str:
    """Connected points, from zero on the y axis, with intervals beside them."""
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    xs = [p[0] for p in points]
    pad = 0.5 if max(xs) == min(xs) else 0.0
    highest = max(*(p[1] for p in points), *(span.high for span in spans), 0.0)
    x, y = _x_axis(min(xs) - pad, max(xs) + pad), _y_axis(0, 1.05 * highest or 1)
    parts = _frame(x, y, x_label, y_label, y_percent)
    parts += [_line(x.at(s.x), y.at(s.low), x.at(s.x), y.at(s.high), f"span {s.colour}") for s in spans]
    for one in series:
        places = [(x.at(a), y.at(b)) for a, b in one.points]
        parts.append(_path(places, f"curve {one.colour}"))
        parts += [f'<circle class="dot {one.colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in places]
    return _svg(parts, f"{y_label} by {x_label}")


def forest(bars: Sequence[Bar], x_label: str) -> str:
    """Ratios with their intervals around 1, one row each, on a logarithmic axis."""
    if not bars:
        return ""
    row, left = 26, 190
    bottom = TOP + row * len(bars)
    low, high = min(0.9, *(b.low for b in bars)), max(1.1, *(b.high for b in bars))
    x = _x_axis(max(low, 0.05) * 0.96, min(high, 20) * 1.04, log=True, left=left)
    parts = []
    ticks = x.ticks() if x.high / x.low > 4 else _linear_ticks(x.low, x.high)
    for tick in ticks:
        parts += [_line(x.at(tick), TOP, x.at(tick), bottom, "grid"), _text(x.at(tick), bottom + 17, f"{tick:g}×")]
    parts.append(_line(x.at(1), TOP - 4, x.at(1), bottom + 4, "one"))
    for place, bar in enumerate(bars):
        middle = TOP + row * (place + 0.5)
        parts.append(_text(left - 12, middle + 4, bar.label, "end", "strong" if bar.strong else "label"))
        parts.append(_line(x.at(bar.low), middle, x.at(bar.high), middle, f"span {bar.colour}"))
        parts.append(
            f'<circle class="dot full {bar.colour}" cx="{x.at(bar.value):.1f}" cy="{middle:.1f}" r="5">'
            f"<title>{escape(bar.label)}: {bar.value:.2f}× [{bar.low:.2f}, {bar.high:.2f}] {escape(bar.note)}</title></circle>"
        )
    parts.append(_text((left + WIDTH - RIGHT) / 2, bottom + 36, x_label, style="label"))
    return _svg(parts, x_label, bottom + 44)
