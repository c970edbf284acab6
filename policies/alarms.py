"""What is worth waking somebody for, as values.

Each alarm is a fact that is true now; it vanishes by itself when it no longer is. The proxy compares two readings to log
what began and what ended.
Reads: ``Fleet``. Settings: ``alarms``. When it is wrong: the acceptance threshold (40 %) is folk wisdom about mismatched
drafts, not a statement about speed; ``gain-below-one`` is the statement about speed.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from policies.acceptance import Acceptance
from policies.backend import Backend
from policies.fleet import Fleet
from policies.gain import DOES_NOT_PAY, PROBING

ALARMS: Final = (
    "low-acceptance",
    "draft-mismatch",
    "not-speculating",
    "plain-speculates",
    "stale-scrape",
    "predictor-drift",
    "gain-below-one",
    "lanes-differ",
    "breaker-open",
    "stalled",
    "silent",
)
"""Every kind there is."""

QUIET_TOKENS: Final = 2_000.0
"""Tokens a speculative backend may generate without one draft before that is odd."""


class Alarm(NamedTuple):
    """Something an operator should know."""

    kind: str
    """One of ``ALARMS``."""
    subject: str
    """Backend, class or model it is about; empty for the fleet."""
    text: str
    value: float | None = None
    """The figure that tripped it."""


def alarms(fleet: Fleet, now: float) -> tuple[Alarm, ...]:
    """All alarms standing at ``now``, in a stable order."""
    found = [alarm for backend in fleet.backends.values() for alarm in _of_backend(fleet, backend, now)]
    found += _of_lanes(fleet)
    found += _of_classes(fleet)
    found += _of_predictor(fleet)
    return tuple(found)


def _of_backend(fleet: Fleet, backend: Backend, now: float) -> Iterator[Alarm]:
    yield from _of_acceptance(fleet, backend)
    yield from _of_counters(fleet, backend, now)
    if backend.breaker.state != "closed":
        text = f"{backend.name} failed {backend.breaker.failures} times in a row and rests ({backend.breaker.state})"
        yield Alarm("breaker-open", backend.name, text, float(backend.breaker.failures))
    if backend.stalled:
        quiet = now - backend.heard_at
        yield Alarm(
            "stalled", backend.name, f"{backend.name} has requests in flight and sent nothing for {quiet:.1f} s", quiet
        )
    if silent(fleet, backend, now):
        idle = now - backend.finished_at
        yield Alarm("silent", backend.name, f"{backend.name} is healthy but finished nothing for {idle:.0f} s", idle)


def silent(fleet: Fleet, backend: Backend, now: float) -> bool:
    """Whether one synthetic request is due: healthy, nothing in flight, nothing finished for long, others busy."""
    if backend.stalled or backend.draining or backend.in_flight or not backend.breaker.admits():
        return False
    others = any(other.finished_at > backend.finished_at for other in fleet.backends.values() if other is not backend)
    return others and now - backend.finished_at >= fleet.settings.silent_seconds


def _of_acceptance(fleet: Fleet, backend: Backend) -> Iterator[Alarm]:
    rules = fleet.settings.alarms
    if not backend.speculative:
        return
    seen = acceptance_of(backend)
    if seen.rate is None or not enough(seen, rules.min_requests):
        return
    position = seen.first_position
    hopeless = position is not None and position <= rules.first_position_rate
    if hopeless or (backend.drafts_always and seen.tokens_per_step is not None and seen.tokens_per_step < 1.02):
        text = f"{backend.name} accepts almost no draft token: draft and target probably do not share a tokenizer"
        yield Alarm("draft-mismatch", backend.name, text, position if position is not None else seen.rate)
    elif seen.rate < rules.acceptance_rate:
        text = f"{backend.name} accepts {seen.rate:.0%} of drafted tokens ({sample(seen)}); below {rules.acceptance_rate:.0%}"
        yield Alarm("low-acceptance", backend.name, text, seen.rate)


def acceptance_of(backend: Backend) -> Acceptance:
    """From answers where they tell, else from counters."""
    seen = backend.yields.overall.acceptance()
    return seen if seen.requests else backend.counters.acceptance()


def enough(seen: Acceptance, requests: int) -> bool:
    """Whether a figure rests on enough to act on: requests, or ten drafted tokens for each where counters tell."""
    return seen.requests >= requests or (seen.requests == 0 and seen.draft_tokens >= 10 * requests)


def sample(seen: Acceptance) -> str:
    """The size of a sample in words."""
    return f"{seen.requests} requests" if seen.requests else f"{seen.draft_tokens:.0f} drafted tokens"


def _of_counters(fleet: Fleet, backend: Backend, now: float) -> Iterator[Alarm]:
    counters = backend.counters
    if counters.scraped_at is not None and now - counters.scraped_at > fleet.settings.alarms.stale_scrape_seconds:
        age = now - counters.scraped_at
        yield Alarm(
            "stale-scrape", backend.name, f"the last good /metrics reading of {backend.name} is {age:.0f} s old", age
        )
    if backend.speculative and backend.drafts_always and counters.quiet_tokens > QUIET_TOKENS:
        text = f"{backend.name} is in the speculative lane but generated {counters.quiet_tokens:.0f} tokens without a draft"
        yield Alarm("not-speculating", backend.name, text, counters.quiet_tokens)
    if not backend.speculative and counters.drafts > 0:
        text = f"{backend.name} is in the plain lane but drafts tokens"
        yield Alarm("plain-speculates", backend.name, text, counters.drafts)


def _of_lanes(fleet: Fleet) -> Iterator[Alarm]:
    sizes: dict[str, dict[int, str]] = {}
    for backend in fleet.backends.values():
        for model in backend.models:
            if backend.max_context_tokens:
                sizes.setdefault(model, {}).setdefault(backend.max_context_tokens, backend.name)
    for model, by_size in sizes.items():
        if len(by_size) > 1:
            told = ", ".join(f"{name} {size}" for size, name in sorted(by_size.items()))
            yield Alarm("lanes-differ", model, f"backends of {model} have different context lengths: {told}")


def _of_classes(fleet: Fleet) -> Iterator[Alarm]:
    for name, known in fleet.verdicts.classes.items():
        if known.state in (DOES_NOT_PAY, PROBING):
            gain = known.gain(fleet.settings.verdict.confidence_z)
            ratio = "" if gain.ratio is None else f" (gain {gain.ratio:.2f}, {gain.lower:.2f} to {gain.upper:.2f})"
            yield Alarm("gain-below-one", name, f"speculation does not pay for {name}{ratio}", gain.ratio)


def _of_predictor(fleet: Fleet) -> Iterator[Alarm]:
    report = fleet.lengths.report()
    if report.within_2x is not None and report.requests >= 100:
        floor = fleet.settings.alarms.predictor_within_2x
        if report.within_2x < floor:
            text = f"only {report.within_2x:.0%} of output predictions were within a factor of two"
            yield Alarm("predictor-drift", "", text, report.within_2x)
