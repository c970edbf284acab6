"""A sweep for people and machines: tables, a page, a record."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape as plain_markup
from rich.table import Table
from rich.text import Text

from proxy.proof.advice import Advice, Setting
from proxy.proof.arm import PLAIN, SPECULATIVE
from proxy.proof.compare import ALL_KINDS
from proxy.proof.page import CLASSES, card, document, findings_card, legend, table
from proxy.proof.paste import instructions
from proxy.proof.plots import Series, Span, lines
from proxy.proof.record import plain_value
from proxy.proof.sweep import Sweep
from proxy.proof.tables import STYLES, finding_line, plain_number, ratio, seconds, share
from proxy.version import VERSION

HEAD = ("setting", "prompts", "latency P50", "latency P99", "per token", "tokens/s", "tokens/step", "accepted", "gain")
SHORT = ("arm", "n", "P50", "P99", "token", "tok/s", "step", "acc.", "gain")
"""The same for a terminal of 80 columns; ``LEGEND`` says what they are."""
LEGEND = "P50, P99: latency; token: time per output token; step: tokens per step"


def show_sweep(console: Console, outcome: Sweep, method: str) -> None:
    """Print everything: findings, a table per load, an advice per kind, what to paste."""
    for finding in outcome.findings:
        console.print(finding_line(finding))
    for advice in outcome.advice:
        if advice.kind == ALL_KINDS:
            console.print(_settings_table(advice))
    for line in prediction_lines(outcome):
        console.print(Text(line))
    if outcome.advice:
        console.print(_advice_table(outcome))
    for name, text in [] if outcome.withheld else to_paste(outcome, method):
        console.print(Text.assemble((f"{name}: ", "bold"), text), soft_wrap=True)
    if outcome.withheld:
        console.print("[bold red]The recommendation is withheld[/] because of the findings above.")


def row(setting: Setting) -> list[str]:
    """A setting's figures, in the order of HEAD."""
    figures, steps = setting.figures, setting.figures.tokens_per_step
    return [
        setting.label,
        str(figures.requests),
        seconds(figures.latency_p50),
        seconds(figures.latency_p99),
        seconds(figures.tpot_p50),
        plain_number(figures.tokens_per_second),
        "–" if steps is None else plain_number(steps.value, 2),
        "–" if figures.acceptance_rate is None else f"{figures.acceptance_rate.value:.0%}",
        "reference" if setting.gain is None else ratio(setting.gain),
    ]


def _settings_table(advice: Advice) -> Table:
    shown = Table(
        title=f"{advice.load}, all kinds",
        title_justify="left",
        caption=LEGEND,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    for place, column in enumerate(SHORT):
        shown.add_column(column, justify="right" if place else "left", no_wrap=place > 0)
    for setting in advice.settings:
        shown.add_row(*map(plain_markup, row(setting)), style="bold" if setting.label == advice.take else "")
    return shown


def prediction_lines(outcome: Sweep) -> list[str]:
    """What was predicted, and what was not run because of it."""
    if not outcome.predictions:
        return []
    ordered = sorted(outcome.predictions, key=lambda p: p.depth)
    said = ", ".join(f"{p.depth}: {p.seconds_per_token * 1000:.1f} ms" for p in ordered)
    lines_ = [
        f"Predicted per output token from one depth's positions (a draft token costs {ordered[-1].cost:.3f} steps): {said}."
    ]
    if outcome.skipped:
        lines_.append(f"Not run, since not worth it by that: {', '.join(outcome.skipped)}.")
    return lines_


def _advice_table(outcome: Sweep) -> Table:
    shown = Table(title="Recommendation", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("load", "kind", "take", "verdict", "why"):
        shown.add_column(column)
    for advice in outcome.advice:
        verdict = "withheld" if outcome.withheld else advice.verdict
        take = "–" if outcome.withheld else advice.take
        style = STYLES.get(verdict, "")
        shown.add_row(
            advice.load,
            plain_markup(advice.kind),
            plain_markup(take),
            Text(verdict, style=style),
            Text(advice.sentence),
        )
    return shown


def to_paste(outcome: Sweep, method: str) -> list[tuple[str, str]]:
    """The flags for the recommended depth of the first load over all kinds; the command where engines were started."""
    advice = next((a for a in outcome.advice if a.kind == ALL_KINDS), None)
    if advice is None or advice.take == PLAIN:
        return []
    candidate = next(c for c in outcome.plan.candidates if c.label == advice.take)
    found = outcome.found.get(advice.take)
    pasted = [("command", candidate.command)] if candidate.command else []
    if candidate.depth:
        engine = "unknown" if found is None else found.engine
        pasted += instructions(engine, candidate.depth, method or (found.method if found else None))
    return pasted


def sweep_page(outcome: Sweep, method: str) -> str:
    """The whole report as one HTML page."""
    overall = [advice for advice in outcome.advice if advice.kind == ALL_KINDS]
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    measured = len(outcome.course.samples) + len(outcome.pilot.samples)
    body = [
        f'<h1>Which draft depth?</h1><p class="soft">draftlane {VERSION} · {when} · {measured} requests measured</p>',
        f'<div class="tiles">{"".join(_tile(advice, outcome) for advice in overall)}</div><div class="cards">',
        findings_card(outcome.findings),
        *(part for advice in overall for part in _cards(advice, outcome)),
        card("Recommendation per kind and load", _advice_rows(outcome), wide=True),
        card("Predictions", "".join(f"<p>{escape(line)}</p>" for line in prediction_lines(outcome)), wide=True),
        card("To paste", _paste(outcome, method), wide=True),
        "</div>",
    ]
    return document("Which draft depth?", "".join(body))


def _tile(advice: Advice, outcome: Sweep) -> str:
    words, style = advice.take, CLASSES.get(advice.verdict, "unknown")
    if outcome.withheld:
        words, style = "withheld", "withheld"
    return (
        f'<div class="tile {style}"><span class="soft">{escape(advice.load)}, all kinds</span>'
        f"<b>{escape(words)}</b>{escape(advice.sentence)}</div>"
    )


def _cards(advice: Advice, outcome: Sweep) -> list[str]:
    rows = [[escape(cell) for cell in row(setting)] for setting in advice.settings]
    return [
        card(f"Gain by depth, {advice.load}", _gain_plot(advice, outcome)),
        card(f"Acceptance per draft position, {advice.load}", _acceptance_plot(advice)),
        card(f"Settings, {advice.load}", table(HEAD, rows), wide=True),
    ]


def _gain_plot(advice: Advice, outcome: Sweep) -> str:
    known = [(float(s.depth), s.gain) for s in advice.settings if s.depth is not None and s.gain is not None]
    if not known:
        return ""
    measured = Series(
        "measured, with 95 % interval", SPECULATIVE, [(depth, gain.value) for depth, gain in sorted(known)]
    )
    spans = [Span(depth, gain.low, gain.high, SPECULATIVE) for depth, gain in known]
    series = [measured, *_predicted(advice, outcome)]
    return legend(series) + lines(series, "draft tokens per step", f"{advice.reference} ÷ this setting", spans=spans)


def _predicted(advice: Advice, outcome: Sweep) -> list[Series]:
    """Predictions as gains: plain seconds per token over predicted ones."""
    reference = next((s.figures.tpot_p50 for s in advice.settings if s.label == advice.reference), None)
    if reference is None or advice.reference != PLAIN or not outcome.predictions:
        return []
    points = [(float(p.depth), reference / p.seconds_per_token) for p in sorted(outcome.predictions)]
    return [Series("predicted", "predicted", points)]


def _acceptance_plot(advice: Advice) -> str:
    drafting = [s for s in advice.settings if s.figures.per_position]
    series = [
        Series(f"{s.label}: {share(s.figures)}", f"arm-{2 + place % 6}", list(enumerate(s.figures.per_position, 1)))
        for place, s in enumerate(drafting)
    ]
    if not series:
        return '<p class="soft">The engines tell no acceptance per position.</p>'
    return legend(series) + lines(series, "draft position", "drafts accepted up to here", y_percent=True)


def _advice_rows(outcome: Sweep) -> str:
    rows = [
        (
            escape(f"{advice.kind}, {advice.load}"),
            escape("–" if outcome.withheld else advice.take),
            escape("withheld" if outcome.withheld else advice.verdict),
            escape(advice.sentence),
        )
        for advice in outcome.advice
    ]
    return table(("kind", "take", "verdict", "why"), rows) if rows else ""


def _paste(outcome: Sweep, method: str) -> str:
    pasted: Sequence[tuple[str, str]] = [] if outcome.withheld else to_paste(outcome, method)
    return "".join(f"<p>{escape(name)}</p><pre>{escape(text)}</pre>" for name, text in pasted)


def sweep_record(outcome: Sweep, method: str) -> dict[str, object]:
    """Everything a reader of ``--json`` may want; values that are not known are null."""
    return {
        "withheld": outcome.withheld,
        "interrupted": outcome.course.interrupted,
        "candidates": plain_value([vars(candidate) for candidate in outcome.plan.candidates]),
        "discovered": {name: plain_value(found._replace(cards=())) for name, found in outcome.found.items()},
        "prompts": plain_value(outcome.diversity),
        "findings": plain_value(outcome.findings),
        "predictions": plain_value(outcome.predictions),
        "skipped": outcome.skipped,
        "advice": plain_value(outcome.advice),
        "paste": [] if outcome.withheld else [{"for": n, "text": t} for n, t in to_paste(outcome, method)],
    }
