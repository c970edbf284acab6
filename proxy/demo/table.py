"""The demonstration's table: per application, class and lane, what was predicted and what came."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.table import Table

from policies.decision import NEVER
from proxy.outcome import Outcome

Entry = dict[str, Any]
Key = tuple[str, str, str]

WHERE = ("n", "tokens\npred./real", "ratio", "break-\neven", "speculation\nhere")
HOW = ("TTFT\nms", "token\nms", "acceptance\n(drafted)", "tokens\nper step")
WIDE = 118
"""Columns of a terminal that take everything in one table; narrower ones get two."""
UNKNOWN = "–"


def tables(outcomes: Sequence[Outcome], verdicts: Sequence[Entry], simulated: bool, width: int) -> list[Table]:
    """Medians over the requests of each row; acceptance and tokens per step over all their tokens."""
    keys = sorted({(one.app, one.workload, one.lane) for one in outcomes})
    rows = [(key, [one for one in outcomes if (one.app, one.workload, one.lane) == key]) for key in keys]
    where = [(key, _where(key[0], some, verdicts)) for key, some in rows]
    how = [(key, _how(some)) for key, some in rows]
    mark = " (SIMULATED engines)" if simulated else ""
    if width >= WIDE:
        both = [(key, left[:-1] + right + left[-1:]) for (key, left), (_, right) in zip(where, how, strict=True)]
        return [_table(f"What went where, and how fast{mark}", WHERE[:-1] + HOW + WHERE[-1:], both)]
    return [_table(f"What went where{mark}", WHERE, where), _table(f"How fast{mark}", HOW, how)]


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[Key, list[str]]]) -> Table:
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("application, class\n  lane", no_wrap=True, vertical="bottom")
    for name in columns:
        # Several verdicts may need several lines; a figure that is cut short is a wrong one.
        shown.add_column(name, justify="right", no_wrap=name != WHERE[-1], vertical="bottom")
    before = ("", "")
    for (app, workload, lane), figures in rows:
        if (app, workload) != before:
            shown.add_row(f"[bold]{app}[/bold], {workload}")
        before = (app, workload)
        shown.add_row(f"  {lane}", *figures)
    return shown


def _where(app: str, rows: Sequence[Outcome], verdicts: Sequence[Entry]) -> list[str]:
    return [
        str(len(rows)),
        f"{_median((one.predicted_tokens for one in rows), 0)}/{_median((one.completion_tokens for one in rows), 0)}",
        _median((one.ratio for one in rows), 2),
        _median((one.break_even for one in rows), 2),
        _verdict(app, verdicts),
    ]


def _how(rows: Sequence[Outcome]) -> list[str]:
    return [
        _median((one.ttft_seconds for one in rows), 0, 1000),
        _median((one.tpot_seconds for one in rows), 1, 1000),
        _acceptance(rows),
        _per_step(rows),
    ]


def _median(values: Iterable[float | None], digits: int, scale: float = 1.0) -> str:
    known = [value * scale for value in values if value is not None]
    if not known:
        return UNKNOWN
    # "Never" is a number so large that the mean of the middle two would be nonsense.
    middle = statistics.median(known) if max(known) < NEVER else statistics.median_low(known)
    return "never" if middle >= NEVER else f"{middle:.{digits}f}"


def _acceptance(rows: Sequence[Outcome]) -> str:
    drafted = sum(one.draft_tokens or 0 for one in rows)
    accepted = sum(one.accepted_tokens or 0 for one in rows)
    return f"{accepted / drafted:.2f} ({drafted})" if drafted else f"{UNKNOWN} (0)"


def _per_step(rows: Sequence[Outcome]) -> str:
    known = [one for one in rows if one.tokens_per_step and one.completion_tokens]
    if not known:
        return UNKNOWN
    tokens = sum(one.completion_tokens or 0 for one in known)
    steps = sum((one.completion_tokens or 0) / (one.tokens_per_step or 1.0) for one in known)
    return f"{tokens / steps:.2f}"


def _verdict(app: str, verdicts: Sequence[Entry]) -> str:
    """Words for the classes of this application; several classes may differ."""
    words = sorted({str(one["verdict"]) for one in verdicts if one["application"] == app})
    return ", ".join(words) or "unknown"


def caption(outcomes: Sequence[Outcome]) -> str:
    """How to read the tables."""
    waiting = sum(one.break_even is None for one in outcomes)
    text = "Medians per row. Acceptance: accepted ÷ drafted tokens; 0/0 is unknown, not 0 %."
    if waiting:
        early = "1 early request went" if waiting == 1 else f"{waiting} early requests went"
        text += f" {early} where fewest were in flight: no break-even ratio was known yet."
    return text
