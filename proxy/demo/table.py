"""The demonstration's table: per application, class and lane, what was predicted and what came."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from proxy.outcome import Outcome

COLUMNS = (
    ("application", "left"),
    ("class", "left"),
    ("lane", "left"),
    ("requests", "right"),
    ("tokens\npredicted", "right"),
    ("\nreal", "right"),
    ("TTFT\nms", "right"),
    ("per token\nms", "right"),
    ("acceptance\n(drafted tokens)", "right"),
    ("tokens\nper step", "right"),
    ("ratio", "right"),
    ("break-even\nratio", "right"),
    ("speculation\nhere", "left"),
)
UNKNOWN = "–"


def table(outcomes: Sequence[Outcome], verdicts: Sequence[dict[str, Any]], simulated: bool) -> Table:
    """Medians over the requests of each row; acceptance and tokens per step over all their tokens."""
    title = "What went where" + (" (SIMULATED engines)" if simulated else "")
    shown = Table(title=title, title_justify="left", caption=_caption(outcomes), caption_justify="left")
    for name, justify in COLUMNS:
        shown.add_column(name, justify="right" if justify == "right" else "left", vertical="bottom")
    before = None
    for key in sorted({(one.app, one.workload, one.lane) for one in outcomes}):
        rows = [one for one in outcomes if (one.app, one.workload, one.lane) == key]
        if before not in (None, key[0]):
            shown.add_section()
        before = key[0]
        shown.add_row(*key, *_figures(rows), _verdict(key[0], verdicts))
    return shown


def _figures(rows: Sequence[Outcome]) -> list[str]:
    return [
        str(len(rows)),
        _median((one.predicted_tokens for one in rows), 0),
        _median((one.completion_tokens for one in rows), 0),
        _median((one.ttft_seconds for one in rows), 0, 1000),
        _median((one.tpot_seconds for one in rows), 1, 1000),
        _acceptance(rows),
        _per_step(rows),
        _median((one.ratio for one in rows), 2),
        _median((one.break_even for one in rows), 2),
    ]


def _median(values: Iterable[float | None], digits: int, scale: float = 1.0) -> str:
    known = [value * scale for value in values if value is not None]
    if not known:
        return UNKNOWN
    middle = statistics.median(known)
    return "never" if middle > 1e6 else f"{middle:.{digits}f}"


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


def _verdict(app: str, verdicts: Sequence[dict[str, Any]]) -> str:
    """Words for the classes of this application; several classes may differ."""
    words = sorted({str(one["verdict"]) for one in verdicts if one["application"] == app})
    return ", ".join(words) or "unknown"


def _caption(outcomes: Sequence[Outcome]) -> str:
    waiting = sum(one.break_even is None for one in outcomes)
    text = "Medians per row. Acceptance: accepted ÷ drafted tokens; 0/0 is unknown, not 0 %."
    if waiting:
        text += f" {waiting} early requests went where fewest were in flight: no break-even ratio was known yet."
    return text
