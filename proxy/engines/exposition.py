"""Reads the few samples an engine's Prometheus page is wanted for.

Not ``prometheus_client.parser``: on a 67 kB vLLM page it takes 18.5 ms against 0.16 ms here (CPython 3.11, the same
twelve samples found), and one odd line makes it raise, where a gateway wants the rest of the page.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from proxy.engines.base import Scrape

_REST = re.compile(r'(?:\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]+(\S+)')
_LABEL = re.compile(r'([A-Za-z_]\w*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"')
_MOST_POSITIONS = 256
"""No engine drafts deeper; a page that says so is not believed (and must not size a list)."""


class Sample(NamedTuple):
    """One line: its labels as written, and its value."""

    labels: str
    value: float

    def label(self, name: str) -> str | None:
        """The label's value with its escapes as written, None when it is absent."""
        return next((value for key, value in _LABEL.findall(self.labels) if key == name), None)


class Names(NamedTuple):
    """Sample names by what they mean; of several, the first one on the page counts (engines rename)."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    cache_usage: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    draft_tokens: tuple[str, ...] = ()
    accepted_tokens: tuple[str, ...] = ()
    per_position: tuple[str, ...] = ()
    generated_tokens: tuple[str, ...] = ()
    acceptance_length: tuple[str, ...] = ()
    position_label: str = "position"


def samples(page: str, name: str) -> list[Sample]:
    """The samples of exactly this name; ``…_created``, ``…_bucket`` and comments are other names."""
    return list(_samples(page, name))


def _samples(page: str, name: str) -> Iterator[Sample]:
    at = 0 if page.startswith(name) else page.find("\n" + name) + 1
    while at or page.startswith(name):
        found = _REST.match(page, at + len(name))
        value = _number(found[2]) if found else None
        if found and value is not None:
            yield Sample(found[1] or "", value)
        at = page.find("\n" + name, at) + 1
        if not at:
            return


def read(page: str, names: Names) -> Scrape:
    """Fold a page into a ``Scrape``: sums over engines and ranks; None for what is not there. Never raises."""
    return Scrape(
        running=_count(page, names.running),
        waiting=_count(page, names.waiting),
        cache_usage=max(_values(page, names.cache_usage), default=None),
        drafts=_sum(page, names.drafts),
        draft_tokens=_sum(page, names.draft_tokens),
        accepted_tokens=_sum(page, names.accepted_tokens),
        accepted_per_position=_positions(page, names.per_position, names.position_label),
        generated_tokens=_sum(page, names.generated_tokens),
        acceptance_length=_mean_of_positive(page, names.acceptance_length),
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _first(page: str, names: tuple[str, ...]) -> list[Sample]:
    return next(filter(None, (samples(page, name) for name in names)), [])


def _values(page: str, names: tuple[str, ...]) -> list[float]:
    return [sample.value for sample in _first(page, names)]


def _sum(page: str, names: tuple[str, ...]) -> float | None:
    values = _values(page, names)
    total = sum(values) if values else math.inf
    return total if math.isfinite(total) else None


def _count(page: str, names: tuple[str, ...]) -> int | None:
    total = _sum(page, names)
    return None if total is None else int(total)


def _mean_of_positive(page: str, names: tuple[str, ...]) -> float | None:
    # A gauge that was never set stands at 0: no step was ever verified, which is not a length.
    values = [value for value in _values(page, names) if value > 0]
    mean = sum(values) / len(values) if values else math.inf
    return mean if math.isfinite(mean) else None


def _positions(page: str, names: tuple[str, ...], label: str) -> tuple[float, ...]:
    totals: dict[int, float] = {}
    for sample in _first(page, names):
        position = sample.label(label) or ""
        if position.isascii() and position.isdigit() and len(position) < 4 and int(position) < _MOST_POSITIONS:
            totals[int(position)] = totals.get(int(position), 0.0) + sample.value
    return tuple(totals.get(position, 0.0) for position in range(max(totals, default=-1) + 1))
