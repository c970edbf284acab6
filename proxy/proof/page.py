"""A comparison as one self-contained HTML page: no script, no font, no request to anywhere."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from proxy.engines.base import Discovered
from proxy.proof.arm import PLAIN, SPECULATIVE, Sample
from proxy.proof.compare import ALL_KINDS, DOES_NOT_PAY, PAYS, Cell
from proxy.proof.figures import Figures, speed
from proxy.proof.findings import Finding
from proxy.proof.intervals import quantile, theil_sen
from proxy.proof.plots import Bar, Series, distribution, forest, lines, scatter
from proxy.proof.session import Outcome
from proxy.proof.tables import ROWS, plain_number, positions, ratio, saving_line, seconds, share
from proxy.version import VERSION

STYLE = Path(__file__).with_name("page.css")
CLASSES = {PAYS: "pays", DOES_NOT_PAY: "loses"}


def html_page(outcome: Outcome) -> str:
    """The whole report."""
    body = [
        "<h1>Does speculation pay?</h1>",
        f'<p class="soft">{_about(outcome)}</p>',
        _tiles(outcome),
        '<div class="cards">',
        findings_card(outcome.findings),
        *([] if outcome.refused else _results(outcome)),
        card("What was compared", _setup(outcome), wide=True),
        "</div>",
    ]
    return document("Does speculation pay?", "".join(body))


def document(title: str, body: str) -> str:
    """A page with the house's style in it."""
    style = STYLE.read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>{body}</body></html>\n"
    )


def card(title: str, inside: str, wide: bool = False) -> str:
    """A titled box; nothing when there is nothing to show."""
    return (
        f'<section class="card{" wide" if wide else ""}"><h2>{escape(title)}</h2>{inside}</section>' if inside else ""
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], strong: int = 0) -> str:
    """Cells are HTML; the first ``strong`` rows are set bold."""
    heads = "".join(f'<th class="{"n" if i else ""}">{escape(h)}</th>' for i, h in enumerate(head))
    lines_ = (
        f'<tr class="{"strong" if number < strong else ""}">'
        + "".join(f'<td class="{"n" if i else ""}">{cell}</td>' for i, cell in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines_)}</tbody></table>"


def legend(series: Iterable[Series]) -> str:
    """Coloured keys."""
    keys = (f'<span><i class="key {one.colour}"></i>{escape(one.name)}</span>' for one in series)
    return f'<div class="legend">{"".join(keys)}</div>'


def _about(outcome: Outcome) -> str:
    measured = len(outcome.course.samples)
    partial = ", stopped before its end" if outcome.course.interrupted else ""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"draftlane {VERSION} · {when} · {measured} requests measured of {outcome.course.planned}{partial}"


def _tiles(outcome: Outcome) -> str:
    if outcome.refused:
        return (
            '<div class="tiles"><div class="tile withheld"><b>Refused</b>Nothing was measured: see below.</div></div>'
        )
    tiles = []
    for cell in outcome.cells:
        if cell.kind == ALL_KINDS:
            words = "withheld" if outcome.withheld else cell.verdict
            style = "withheld" if outcome.withheld else CLASSES.get(cell.verdict, "unknown")
            tiles.append(
                f'<div class="tile {style}"><span class="soft">{escape(cell.load)}, all kinds</span>'
                f"<b>{escape(words)}</b>{escape(cell.sentence)}</div>"
            )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def findings_card(findings: Sequence[Finding]) -> str:
    """The findings as boxes."""
    boxes = "".join(
        f'<div class="finding {f.severity}"><b>{f.severity}: {f.name}</b><br>{escape(f.sentence)}</div>'
        for f in findings
    )
    return card("What could fool you here", boxes, wide=True)


def _results(outcome: Outcome) -> list[str]:
    parts = [
        card("Gain per kind (above 1: speculation is faster)", _forest(outcome.cells)),
        card("What it would save", "".join(f"<p>{escape(saving_line(saving))}</p>" for saving in outcome.savings)),
        card("Verdicts", _verdicts(outcome), wide=True),
    ]
    for cell in outcome.cells:
        if cell.kind != ALL_KINDS:
            continue
        samples = [s for s in outcome.course.samples if s.place.load == cell.load and s.ok]
        parts += [
            card(f"Figures, {cell.load}", _figures(cell), wide=True),
            card(f"Latency, {cell.load}", _latencies(samples)),
            card(f"Speed against run order, {cell.load}", _order(samples)),
            card(f"Acceptance per draft position, {cell.load}", _acceptance(outcome.cells, cell.load)),
        ]
    return parts


def _forest(cells: Sequence[Cell]) -> str:
    many = len({cell.load for cell in cells}) > 1
    bars = [
        Bar(
            f"{cell.kind}, {cell.load}" if many else cell.kind,
            *(interval.value, interval.low, interval.high),
            CLASSES.get(cell.verdict, "unknown"),
            cell.verdict,
            strong=cell.kind == ALL_KINDS,
        )
        for cell in cells
        if (interval := cell.ratios["equal_length"]) is not None
    ]
    return forest(bars, "plain ÷ speculative seconds, 95 % interval")


def _verdicts(outcome: Outcome) -> str:
    rows = []
    for cell in outcome.cells:
        words = "withheld" if outcome.withheld else cell.verdict
        style = CLASSES.get(words, "loses" if outcome.withheld else "unknown")
        figures = cell.figures[SPECULATIVE]
        steps = figures.tokens_per_step
        rows.append(
            (
                escape(cell.kind if len(outcome.plan.loads) == 1 else f"{cell.kind}, {cell.load}"),
                str(figures.requests),
                ratio(cell.ratios["equal_length"]),
                plain_number(steps.value if steps else None, 2),
                "–" if figures.acceptance_rate is None else f"{figures.acceptance_rate.value:.0%}",
                f'<span class="{style}">{escape(words)}</span>',
            )
        )
    overall = sum(cell.kind == ALL_KINDS for cell in outcome.cells)
    return table(("kind", "prompts", "gain", "tokens/step", "accepted", "verdict"), rows, strong=overall)


def _figures(cell: Cell) -> str:
    one, other = cell.figures[PLAIN], cell.figures[SPECULATIVE]
    rows = [
        (label, seconds(getattr(one, key)), seconds(getattr(other, key)), ratio(cell.ratios.get(compared or "")))
        for label, key, compared in ROWS
    ]
    rows.append(("time at equal length", "", "", ratio(cell.ratios["equal_length"])))
    rows += [(label, show_one(one), show_one(other), "") for label, show_one in DRAFTING]
    return table(("", PLAIN, SPECULATIVE, "plain ÷ speculative"), rows)


def _steps(figures: Figures) -> str:
    return plain_number(figures.tokens_per_step.value if figures.tokens_per_step else None, 2)


DRAFTING = (
    ("output tokens/s", lambda f: plain_number(f.tokens_per_second)),
    ("throughput, tokens/s", lambda f: plain_number(f.throughput)),
    ("in flight, measured", lambda f: plain_number(f.in_flight)),
    ("tokens per step", _steps),
    ("acceptance length", lambda f: plain_number(f.acceptance_length, 2)),
    ("acceptance rate", share),
    ("accepted at position 1, 2 …", lambda f: positions(f.per_position)),
    ("requests (failed)", lambda f: f"{f.requests} ({f.failed})"),
)


def _series(samples: Sequence[Sample], points: str) -> list[Series]:
    picked = []
    for arm in (PLAIN, SPECULATIVE):
        own = [sample for sample in samples if sample.arm == arm]
        if points == "latency":
            values = [(s.latency_seconds, 0.0) for s in own if s.latency_seconds]
        else:
            values = [(float(s.place.order), value) for s in own if (value := speed(s))]
        picked.append(Series(arm, arm, values))
    return picked


def _latencies(samples: Sequence[Sample]) -> str:
    series = _series(samples, "latency")
    return legend(series) + distribution(series, "seconds per request")


def _order(samples: Sequence[Sample]) -> str:
    series = _series(samples, "speed")
    trends = [trend for one in series if (trend := _trend(one)) is not None]
    return legend(series) + scatter(series, trends, "run order", "output tokens/s")


def _trend(series: Series) -> Series | None:
    """Theil–Sen on the logarithm, drawn from the first to the last request."""
    logs = [math.log(value) for _, value in series.points]
    slope = theil_sen(logs)
    if slope is None:
        return None
    middle, half = quantile(logs, 0.5), slope.value * (len(logs) - 1) / 2
    ends = zip((series.points[0][0], series.points[-1][0]), (middle - half, middle + half), strict=True)
    return Series(series.name, series.colour, [(x, math.exp(y)) for x, y in ends])


def _acceptance(cells: Sequence[Cell], load: str) -> str:
    shown = [c for c in cells if c.load == load and c.figures[SPECULATIVE].per_position]
    shown = sorted(shown, key=lambda c: c.kind != ALL_KINDS)[:8]
    series = [
        Series(
            f"{cell.kind} ({cell.figures[SPECULATIVE].requests} requests)",
            SPECULATIVE if cell.kind == ALL_KINDS else f"arm-{2 + place % 6}",
            [(i, value) for i, value in enumerate(cell.figures[SPECULATIVE].per_position, 1)],
        )
        for place, cell in enumerate(shown)
    ]
    if not series:
        return '<p class="soft">The engine tells no acceptance per position.</p>'
    return legend(series) + lines(series, "draft position", "drafts accepted up to here", y_percent=True)


def _setup(outcome: Outcome) -> str:
    rows = []
    for arm in (outcome.plan.plain, outcome.plan.speculative):
        found = outcome.found.get(arm.name)
        engine = "" if found is None else f"{found.engine} {found.version or ''}"
        model = arm.model or (found.models[0] if found and found.models else "")
        asked = " ".join(f"{key}={value}" for key, value in arm.body.items())
        rows.append([escape(cell) for cell in (arm.name, engine, model, _speculation(found), asked)])
    d = outcome.diversity
    prompts = (
        f"{d.prompts} prompts; {d.containment:.1%} of their 8-word runs stand in earlier prompts, {d.duplicates:.1%} are "
        f"duplicates, {d.self_repetition:.1%} of their text repeats itself. Each prompt went once to each arm, arms "
        "alternating; intervals are 95 % bootstrap intervals over pairs; times at equal length are first-token time plus "
        "time per token (from usage) times the mean answer length of both arms."
    )
    return table(("arm", "engine", "model", "speculation", "request"), rows) + f'<p class="soft">{escape(prompts)}</p>'


def _speculation(found: Discovered | None) -> str:
    if found is None or not found.speculative:
        return ""
    return (found.method or "on") + (f", depth {found.depth}" if found.depth else "")
