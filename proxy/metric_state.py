"""Metrics of what is learnt: read from a snapshot of the judgement at scrape time, so they cost a request nothing.

The snapshot is what ``/admin/state`` shows: sections of entries. Whatever a section lacks yields no sample; a figure that
is not known (None) has no sample either, since zero would be a measurement.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Sample = tuple[str, tuple[str, ...], float]
"""Metric name, label values, value."""

CLASSES_SHOWN = 200
"""Classes with a verdict are made of names that clients may choose; those with the most evidence are shown."""


class Reading(NamedTuple):
    """Where a metric is in the snapshot: ``value`` of every entry of ``section``."""

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


_CLASS = ("model", "app", "content", "temperature")

READINGS: tuple[Reading, ...] = (
    Reading("draftlane_backend_in_flight", "backends", "own_in_flight", ("backend", "lane")),
    Reading("draftlane_backend_peer_in_flight", "backends", "peer_in_flight", ("backend", "lane")),
    Reading("draftlane_backend_running", "backends", "running", ("backend",)),
    Reading("draftlane_backend_waiting", "backends", "waiting", ("backend",)),
    Reading("draftlane_backend_cache_usage_ratio", "backends", "cache_usage", ("backend",)),
    Reading("draftlane_backend_scrape_age_seconds", "backends", "scrape_age_seconds", ("backend",)),
    Reading("draftlane_backend_stalled", "backends", "stalled", ("backend",)),
    Reading("draftlane_backend_step_seconds", "backends", "step_seconds", ("backend",)),
    Reading("draftlane_backend_step_seconds_per_request", "backends", "step_seconds_per_request", ("backend",)),
    Reading("draftlane_backend_prefill_seconds_per_token", "backends", "prefill_seconds_per_token", ("backend",)),
    Reading("draftlane_backend_completions", "backends", "completions", ("backend",)),
    Reading("draftlane_acceptance_ratio", "acceptance", "rate", ("backend", "class")),
    Reading("draftlane_acceptance_length_tokens", "acceptance", "length", ("backend", "class")),
    Reading("draftlane_acceptance_requests", "acceptance", "requests", ("backend", "class")),
    Reading("draftlane_tokens_per_step", "acceptance", "tokens_per_step", ("backend", "class")),
    Reading("draftlane_break_even_ratio", "break_even", "ratio", ("model",)),
    Reading("draftlane_gain_ratio", "verdicts", "gain", _CLASS),
    Reading("draftlane_gain_low_ratio", "verdicts", "low", _CLASS),
    Reading("draftlane_gain_high_ratio", "verdicts", "high", _CLASS),
    Reading("draftlane_gain_requests", "verdicts", "speculative_requests", _CLASS, "speculative"),
    Reading("draftlane_gain_requests", "verdicts", "plain_requests", _CLASS, "plain"),
    Reading("draftlane_predictor_keys", "predictor", "keys"),
    Reading("draftlane_predictor_coverage_ratio", "predictor", "coverage"),
    Reading("draftlane_predictor_within_2x_ratio", "predictor", "within_2x"),
    Reading("draftlane_prefix_entries", "predictor", "prefixes"),
)

FLAGS: tuple[Flag, ...] = (
    Flag("draftlane_breaker", "backends", "breaker", ("closed", "open", "half-open"), ("backend",)),
    Flag("draftlane_verdict", "verdicts", "verdict", ("unknown", "pays", "does not pay", "probing"), _CLASS),
)


def rows(snapshot: Mapping[str, object]) -> Iterator[Sample]:
    """All samples that the snapshot has something for."""
    sections = {name: list(_entries(snapshot, name)) for name in {reading.section for reading in READINGS}}
    sections["verdicts"] = sorted(sections["verdicts"], key=_evidence, reverse=True)[:CLASSES_SHOWN]
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
        yield "draftlane_backend_info", _labels(entry, ("backend", "lane", "engine")), 1.0
    for entry in _entries(snapshot, "alarms"):
        yield "draftlane_alarm", _labels(entry, ("alarm", "subject")), 1.0


def _entries(snapshot: Mapping[str, object], section: str) -> Iterator[Mapping[str, object]]:
    found = snapshot.get(section)
    if isinstance(found, Mapping):
        yield found
    elif isinstance(found, Iterable) and not isinstance(found, (str, bytes)):
        yield from (entry for entry in found if isinstance(entry, Mapping))


def _evidence(entry: Mapping[str, object]) -> float:
    sizes = (entry.get("speculative_requests"), entry.get("plain_requests"))
    return sum(size for size in sizes if isinstance(size, (int, float)))


def _labels(entry: Mapping[str, object], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(entry.get(name) or "") for name in names)
