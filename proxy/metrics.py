"""What is counted while requests pass: plain lists and dictionaries, turned into metrics only when somebody asks.

One request costs two dictionary look-ups and a few bisections (``proxy.histogram``). All families that describe requests
are sums over the same cells. ``proxy.metric_table`` says what there is, ``proxy.metric_state`` reads what was learnt.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import NamedTuple

from policies.decision import Verdict
from policies.events import Event, Failed
from proxy.histogram import Histogram
from proxy.metric_page import Figure, Figures, Page, merge, page
from proxy.metric_state import rows
from proxy.metric_table import (
    LATENCY_SECONDS,
    METRICS,
    OWN_SECONDS,
    PREDICTED_TO_REAL,
    TOKENS,
    TPOT_SECONDS,
    TTFT_SECONDS,
    Row,
)
from proxy.outcome import OK, REJECTED, Outcome
from proxy.pace import paced

__all__ = ["METRICS", "Figures", "Metrics", "Page", "Row", "merge", "page"]

APPS_NAMED = 100
CELLS = 2000
OTHER = "other"

OPERATIONS = {
    "chat": ("chat", "openai"),
    "completions": ("text_completion", "openai"),
    "responses": ("chat", "openai"),
    "messages": ("chat", "anthropic"),
    "embeddings": ("embeddings", "openai"),
}
"""Surface → ``gen_ai.operation.name``, ``gen_ai.provider.name`` (the dialect spoken, as the conventions have it)."""


class Key(NamedTuple):
    """What tells one cell from another."""

    surface: str
    model: str
    lane: str
    workload: str
    backend: str
    outcome: str
    status: int
    reason: str
    fault: str | None


class Cell:
    """Requests that are alike in everything a label tells."""

    __slots__ = ("input", "latency", "output", "predicted", "requests", "tpot", "ttft")

    def __init__(self) -> None:
        self.requests = 0
        self.latency = Histogram(LATENCY_SECONDS)
        self.ttft = Histogram(TTFT_SECONDS)
        self.tpot = Histogram(TPOT_SECONDS)
        self.input = Histogram(TOKENS)
        self.output = Histogram(TOKENS)
        self.predicted = Histogram(PREDICTED_TO_REAL)


class App:
    """One application on one lane."""

    __slots__ = ("cached", "input", "output", "requests")

    def __init__(self) -> None:
        self.requests = self.input = self.cached = self.output = 0


class Metrics:
    """The gateway's own counts. ``started``, ``ended`` and ``heard`` belong to the loop, the rest may run anywhere."""

    def __init__(self, version: str = "", policy: str = "") -> None:
        self._info = (version, policy)
        self._cells: dict[tuple[object, ...], Cell] = {}
        self._apps: dict[tuple[str, str], App] = {}
        self._app_names: set[str] = set()
        self._running: dict[str, int] = {}
        self._repeats: dict[tuple[str, str], int] = {}
        self._faults: dict[tuple[str, str], int] = {}
        self._predictions: dict[tuple[str, bool], int] = {}
        self._own = Histogram(OWN_SECONDS)
        self._watched: dict[tuple[str, tuple[str, ...]], Callable[[], float]] = {}

    def watch(self, name: str, value: Callable[[], float], *labels: str) -> None:
        """Ask ``value`` at every scrape; ``name`` is a row of ``METRICS``, ``labels`` its label values."""
        self._watched[name, labels] = value

    def started(self, surface: str) -> None:
        """A request came in. Each needs its ``ended``."""
        self._running[surface] = self._running.get(surface, 0) + 1

    def heard(self, said: Sequence[Event | Verdict]) -> None:
        """Things happened; what counts here is what backends did wrong, whether or not the request was saved."""
        for event in said:
            if type(event) is Failed:
                self._failed(event.backend, event.fault)

    def _failed(self, backend: str, fault: str) -> None:
        key = backend, fault
        self._faults[key] = self._faults.get(key, 0) + 1

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """Requests are over."""
        for told in outcomes:
            self._count(told)

    def _count(self, told: Outcome) -> None:
        self._running[told.surface] -= 1
        model = told.model if told.model_known else OTHER
        key = (told.surface, model, told.lane, told.workload, told.backend, told.outcome, told.status, told.reason, told.fault)  # fmt: skip
        cell = self._cells.get(key) or self._new_cell(key)
        cell.requests += 1
        cell.latency.observe(told.latency_seconds)
        if told.ttft_seconds is not None:
            cell.ttft.observe(told.ttft_seconds)
        if told.tpot_seconds is not None:
            cell.tpot.observe(told.tpot_seconds)
        if told.prompt_tokens is not None:
            cell.input.observe(told.prompt_tokens)
        if told.own_seconds is not None:
            self._own.observe(told.own_seconds)
        if told.completion_tokens:
            cell.output.observe(told.completion_tokens)
            if told.predicted_tokens is not None:
                self._predicted(cell, told.predicted_tokens / told.completion_tokens, told.output_from)
        self._count_app(told)
        if told.retries or told.requeues:
            self._repeat(told)

    def _new_cell(self, key: tuple[object, ...]) -> Cell:
        if len(self._cells) >= CELLS:
            surface, _, lane, workload, _, outcome, status, _, fault = key
            key = (surface, OTHER, lane, workload, OTHER, outcome, status, OTHER, fault)
        return self._cells.setdefault(key, Cell())

    def _predicted(self, cell: Cell, ratio: float, source: str) -> None:
        cell.predicted.observe(ratio)
        key = source, 0.5 <= ratio <= 2.0
        self._predictions[key] = self._predictions.get(key, 0) + 1

    def _count_app(self, told: Outcome) -> None:
        app = self._apps.get((told.app, told.lane)) or self._new_app(told.app, told.lane)
        app.requests += 1
        app.input += told.prompt_tokens or 0
        app.cached += told.cached_tokens or 0
        app.output += told.completion_tokens or 0

    def _new_app(self, name: str, lane: str) -> App:
        if name not in self._app_names:
            if len(self._app_names) >= APPS_NAMED:
                name = OTHER
            else:
                self._app_names.add(name)
        return self._apps.setdefault((name, lane), App())

    def _repeat(self, told: Outcome) -> None:
        for name, times in (("draftlane_retries_total", told.retries), ("draftlane_requeues_total", told.requeues)):
            if times:
                key = name, told.surface
                self._repeats[key] = self._repeats.get(key, 0) + times

    def render(self, snapshot: Mapping[str, object], accept: str = "") -> Page:
        """The page of this process alone. Call it in a thread."""
        return page(self.export(snapshot), accept)

    def export(self, snapshot: Mapping[str, object]) -> Figures:
        """All figures as plain data, for ``merge`` and ``page``. Safe beside the loop, and off it: it sleeps in between."""
        figures: Figures = {}
        for raw, cell in paced(list(self._cells.items())):
            _add_cell(figures, Key(*raw), cell)  # type: ignore[arg-type]  # made by ``ended`` in this order
        for (name, lane), app in list(self._apps.items()):
            _add(figures, "draftlane_app_requests_total", (name, lane), app.requests)
            for kind, tokens in (("input", app.input), ("cached", app.cached), ("output", app.output)):
                _add(figures, "draftlane_app_tokens_total", (name, kind), tokens)
        self._export_counts(figures)
        for metric, labels, value in paced(rows(snapshot)):
            _add(figures, metric, labels, value)
        return figures

    def _export_counts(self, figures: Figures) -> None:
        _add(figures, "draftlane_info", self._info, 1.0)
        _add(figures, "draftlane_own_seconds", (), _of(self._own))
        for surface, running in list(self._running.items()):
            _add(figures, "draftlane_requests_in_progress", (surface,), running)
        for (backend, fault), count in list(self._faults.items()):
            _add(figures, "draftlane_faults_total", (backend, fault), count)
        for (source, near), count in list(self._predictions.items()):
            _add(figures, "draftlane_predictions_total", (source, "true" if near else "false"), count)
        for (name, surface), count in list(self._repeats.items()):
            _add(figures, name, (surface,), count)
        for (name, labels), value in list(self._watched.items()):
            _add(figures, name, labels, value())


def _add_cell(figures: Figures, key: Key, cell: Cell) -> None:
    lane = key.lane, key.workload
    status = f"{key.status // 100}xx" if key.status else "none"
    _add(figures, "draftlane_requests_total", (key.surface, *lane, key.outcome, status), cell.requests)
    if key.outcome == REJECTED:
        _add(figures, "draftlane_rejections_total", (key.fault or "",), cell.requests)
    if key.backend:
        _add(figures, "draftlane_decisions_total", (key.backend, *lane, key.reason), cell.requests)
    _add(figures, "draftlane_request_duration_seconds", lane, _of(cell.latency))
    _add(figures, "draftlane_time_to_first_token_seconds", lane, _of(cell.ttft))
    _add(figures, "draftlane_time_per_output_token_seconds", lane, _of(cell.tpot))
    _add(figures, "draftlane_predicted_to_real_output", (key.workload,), _of(cell.predicted))
    if key.surface in OPERATIONS:
        _add_gen_ai(figures, key, cell)


def _add_gen_ai(figures: Figures, key: Key, cell: Cell) -> None:
    what = (*OPERATIONS[key.surface], key.model)
    error = "" if key.outcome == OK else key.fault or str(key.status)
    _add(figures, "gen_ai_server_request_duration_seconds", (*what, error), _of(cell.latency))
    _add(figures, "gen_ai_client_token_usage", (*what, "input"), _of(cell.input))
    _add(figures, "gen_ai_client_token_usage", (*what, "output"), _of(cell.output))
    if key.outcome == OK:
        _add(figures, "gen_ai_server_time_to_first_token_seconds", what, _of(cell.ttft))
        _add(figures, "gen_ai_server_time_per_output_token_seconds", what, _of(cell.tpot))


def _of(histogram: Histogram) -> Figure:
    return tuple(histogram.counts), histogram.total


def _add(figures: Figures, name: str, labels: tuple[str, ...], figure: Figure) -> None:
    samples = figures.setdefault(name, {})
    before = samples.get(labels)
    if before is None:
        samples[labels] = figure
    elif isinstance(before, tuple) and isinstance(figure, tuple):
        samples[labels] = tuple(map(add, before[0], figure[0])), before[1] + figure[1]
    elif not isinstance(before, tuple) and not isinstance(figure, tuple):
        samples[labels] = before + figure
