"""Metrics of what is learnt: read from a snapshot of the judgement at scrape time, so they cost a request nothing.

The snapshot is ``policies.snapshot`` (what ``/admin/state`` shows), with ``scrapes`` from the engines' own pages beside it.
A figure that is not known (None, or a section that is not there) has no sample, since zero would be a measurement.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Sample = tuple[str, tuple[str, ...], float]
"""Metric name, label values, value."""

Entry = Mapping[str, object]

CLASSES_SHOWN = 200
"""Classes with a verdict are made of names that clients may choose; those with the most evidence are shown."""


class Reading(NamedTuple):
    """Where a metric is: ``value`` of every entry of a section of ``_sections``."""

    metric: str
    section: str
    value: str
    labels: tuple[str, ...] = ()
    """Fields of the entry, in the order of the metric's labels."""
    says: str | None = None
    """A last label that is no field."""


class Flag(NamedTuple):
    """A metric that is 1 for the word which ``value`` holds; the word is the last label."""

    metric: str
    section: str
    value: str
    words: tuple[str, ...]
    labels: tuple[str, ...]


_CLASS = ("model", "application", "content", "temperature")
_OF_BACKEND = ("name", *_CLASS)

READINGS: tuple[Reading, ...] = (
    Reading("draftlane_backend_in_flight", "backends", "own_in_flight", ("name", "lane")),
    Reading("draftlane_backend_peer_in_flight", "backends", "peer_in_flight", ("name", "lane")),
    Reading("draftlane_backend_step_seconds", "backends", "step_base_seconds", ("name",)),
    Reading("draftlane_backend_step_seconds_per_request", "backends", "step_seconds_per_request", ("name",)),
    Reading("draftlane_backend_prefill_seconds_per_token", "backends", "prefill_seconds_per_token", ("name",)),
    Reading("draftlane_backend_completions", "backends", "finished", ("name",)),
    Reading("draftlane_backend_running", "scrapes", "running", ("name",)),
    Reading("draftlane_backend_waiting", "scrapes", "waiting", ("name",)),
    Reading("draftlane_backend_cache_usage_ratio", "scrapes", "cache_usage", ("name",)),
    Reading("draftlane_backend_scrape_age_seconds", "scrapes", "age_seconds", ("name",)),
    Reading("draftlane_acceptance_ratio", "acceptance", "rate", ("name",)),
    Reading("draftlane_acceptance_tokens_per_step", "acceptance", "tokens_per_step", ("name",)),
    Reading("draftlane_acceptance_requests", "acceptance", "requests", ("name",)),
    Reading("draftlane_acceptance_draft_tokens", "acceptance", "draft_tokens", ("name",)),
    Reading("draftlane_class_acceptance_ratio", "class_acceptance", "rate", _OF_BACKEND),
    Reading("draftlane_class_acceptance_tokens_per_step", "class_acceptance", "tokens_per_step", _OF_BACKEND),
    Reading("draftlane_class_acceptance_requests", "class_acceptance", "requests", _OF_BACKEND),
    Reading("draftlane_break_even_ratio", "break_even", "ratio", ("model",)),
    Reading("draftlane_gain_ratio", "verdicts", "ratio", _CLASS),
    Reading("draftlane_gain_low_ratio", "verdicts", "lower", _CLASS),
    Reading("draftlane_gain_high_ratio", "verdicts", "upper", _CLASS),
    Reading("draftlane_gain_requests", "verdicts", "speculative_requests", _CLASS, "speculative"),
    Reading("draftlane_gain_requests", "verdicts", "plain_requests", _CLASS, "plain"),
    Reading("draftlane_predictor_keys", "predictor", "keys"),
    Reading("draftlane_predictor_coverage_ratio", "predictor", "coverage"),
    Reading("draftlane_predictor_within_2x_ratio", "predictor", "within_2x"),
    Reading("draftlane_predictor_error_log2", "predictor", "error_log2"),
    Reading("draftlane_prefix_entries", "memory", "prefixes"),
    Reading("draftlane_retries_left", "fleet", "retries_left"),
)

_STATES = ("serving", "cold", "busy", "stalled", "half-open", "open", "draining")
FLAGS: tuple[Flag, ...] = (
    Flag("draftlane_backend_state", "backends", "state", _STATES, ("name",)),
    Flag("draftlane_verdict", "verdicts", "verdict", ("unknown", "pays", "does not pay", "probing"), _CLASS),
)


def rows(snapshot: Entry) -> Iterator[Sample]:
    """All samples that the snapshot has something for."""
    sections = _sections(snapshot)
    for reading in READINGS:
        for entry in sections[reading.section]:
            value = entry.get(reading.value)
            if isinstance(value, (int, float)):
                said = () if reading.says is None else (reading.says,)
                yield reading.metric, _labels(entry, reading.labels) + said, float(value)
    for flag in FLAGS:
        for entry in sections[flag.section]:
            if (value := entry.get(flag.value)) in flag.words:
                yield from ((flag.metric, (*_labels(entry, flag.labels), word), word == value) for word in flag.words)
    for entry in sections["backends"]:
        yield "draftlane_backend_info", _labels(entry, ("name", "lane", "engine")), 1.0
    for entry in _list(snapshot.get("alarms")):
        yield "draftlane_alarm", _labels(entry, ("kind", "subject")), 1.0


def _sections(snapshot: Entry) -> dict[str, list[Entry]]:
    backends = _list(snapshot.get("backends"))
    verdicts = sorted(_list(snapshot.get("verdicts")), key=_evidence, reverse=True)
    return {
        "fleet": [snapshot],
        "backends": [{**backend, "peer_in_flight": _peers(backend)} for backend in backends],
        "scrapes": _list(snapshot.get("scrapes")),
        "acceptance": [{**_map(backend.get("acceptance")), "name": backend.get("name")} for backend in backends],
        "class_acceptance": [entry for backend in backends for entry in _by_class(backend)][:CLASSES_SHOWN],
        "break_even": [
            {**_map(figures), "model": model} for model, figures in _map(snapshot.get("break_even")).items()
        ],
        "verdicts": verdicts[:CLASSES_SHOWN],
        "predictor": [_map(snapshot.get("predictor"))],
        "memory": [_map(snapshot.get("memory"))],
    }


def _by_class(backend: Entry) -> Iterator[Entry]:
    for name, figures in _map(backend.get("acceptance_by_class")).items():
        if name.count("|") >= len(_CLASS) - 1:
            yield {**_map(figures), "name": backend.get("name"), **dict(zip(_CLASS, name.rsplit("|", 3), strict=True))}


def _peers(backend: Entry) -> int | None:
    together, own = backend.get("in_flight"), backend.get("own_in_flight")
    return together - own if isinstance(together, int) and isinstance(own, int) else None


def _evidence(entry: Entry) -> float:
    sizes = (entry.get("speculative_requests"), entry.get("plain_requests"))
    return sum(size for size in sizes if isinstance(size, (int, float)))


def _labels(entry: Entry, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(entry.get(name) or "") for name in names)


def _list(found: object) -> list[Entry]:
    if not isinstance(found, Iterable) or isinstance(found, (str, bytes)):
        return []
    return [entry for entry in found if isinstance(entry, Mapping)]


def _map(found: object) -> Entry:
    return found if isinstance(found, Mapping) else {}
