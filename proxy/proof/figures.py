"""One arm's figures over some requests: times, speed, drafting."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.proof.answer import Acceptance
from proxy.proof.arm import Sample
from proxy.proof.counters import acceptance_of
from proxy.proof.course import Course
from proxy.proof.intervals import Interval, Pair, bootstrap, quantile, total_ratio

Pick = Callable[[Sample], float | None]


class Figures(NamedTuple):
    """One arm, one kind, one load. Seconds; None where nothing was told."""

    requests: int
    failed: int
    latency_p50: float | None
    latency_p99: float | None
    ttft_p50: float | None
    ttft_p99: float | None
    tpot_p50: float | None
    tpot_p99: float | None
    tokens_per_second: float | None
    """Completion tokens ÷ seconds of waiting for them, one request's view."""
    throughput: float | None
    """Completion tokens ÷ seconds the arm had its turn, all requests together; only over all kinds."""
    in_flight: float | None
    """Measured mean of requests at once; only over all kinds."""
    completion_tokens: int
    acceptance_rate: Interval | None
    """Accepted ÷ drafted tokens; ``pairs`` are requests."""
    tokens_per_step: Interval | None
    acceptance_length: float | None
    """1 + accepted tokens per draft, bonus token included."""
    drafts: float | None
    drafted_tokens: float | None
    per_position: tuple[float, ...]
    """Share of drafts whose first i tokens were accepted."""


def latency(sample: Sample) -> float | None:
    """Seconds from sending to the last token."""
    return sample.latency_seconds


def ttft(sample: Sample) -> float | None:
    """Seconds to the first token."""
    return sample.ttft_seconds


def tpot(sample: Sample) -> float | None:
    """Seconds per token after the first."""
    return sample.tpot_seconds


def speed(sample: Sample) -> float | None:
    """Completion tokens per second of waiting."""
    if not sample.completion_tokens or not sample.latency_seconds:
        return None
    return sample.completion_tokens / sample.latency_seconds


def figures_of(course: Course, samples: Sequence[Sample], arm: str, kind: str | None, seed: int = 1) -> Figures:
    """An arm's figures over these samples of it."""
    good = [s for s in samples if s.ok]
    times = {pick: [v for s in good if (v := pick(s)) is not None] for pick in (latency, ttft, tpot)}
    drafting = acceptance_of(course, arm, good, None if kind is None else frozenset({kind}))
    tokens = sum(s.completion_tokens or 0 for s in good)
    waited = sum(times[latency])
    turn_seconds = _turn_seconds(course, arm, good) if kind is None else None
    return Figures(
        requests=len(good),
        failed=len(samples) - len(good),
        latency_p50=_quantile(times[latency], 0.5),
        latency_p99=_quantile(times[latency], 0.99),
        ttft_p50=_quantile(times[ttft], 0.5),
        ttft_p99=_quantile(times[ttft], 0.99),
        tpot_p50=_quantile(times[tpot], 0.5),
        tpot_p99=_quantile(times[tpot], 0.99),
        tokens_per_second=tokens / waited if waited and tokens else None,
        throughput=tokens / turn_seconds if turn_seconds and tokens else None,
        in_flight=waited / turn_seconds if turn_seconds else None,
        completion_tokens=tokens,
        acceptance_rate=_acceptance_rate(good, drafting, seed),
        tokens_per_step=_tokens_per_step(good, drafting, tokens, seed),
        acceptance_length=_acceptance_length(drafting),
        drafts=None if drafting is None else drafting.drafts,
        drafted_tokens=None if drafting is None else drafting.draft_tokens,
        per_position=_shares(drafting),
    )


def _quantile(values: Sequence[float], q: float) -> float | None:
    return quantile(values, q) if values else None


def _turn_seconds(course: Course, arm: str, samples: Sequence[Sample]) -> float:
    loads = {sample.place.load for sample in samples}
    return sum(turn.seconds for turn in course.turns if turn.arm == arm and turn.load in loads)


def _acceptance_rate(samples: Sequence[Sample], drafting: Acceptance | None, seed: int) -> Interval | None:
    told = [
        Pair(s.acceptance.accepted_tokens or 0, s.acceptance.draft_tokens, s.place.block)
        for s in samples
        if s.acceptance is not None and s.acceptance.draft_tokens
    ]
    if (interval := bootstrap(told, total_ratio, seed=seed)) is not None:
        return interval
    if drafting is None or not drafting.draft_tokens:
        return None
    rate = (drafting.accepted_tokens or 0) / drafting.draft_tokens
    return Interval(rate, math.nan, math.nan, len(samples))


def _tokens_per_step(samples: Sequence[Sample], drafting: Acceptance | None, tokens: int, seed: int) -> Interval | None:
    """Every step yields one token more than it accepted, on every engine: steps = tokens − accepted."""
    told = [
        Pair(s.completion_tokens, s.completion_tokens - (s.acceptance.accepted_tokens or 0), s.place.block)
        for s in samples
        if s.acceptance is not None and s.acceptance.draft_tokens is not None and s.completion_tokens
    ]
    if (interval := bootstrap(told, total_ratio, seed=seed)) is not None:
        return interval
    if drafting is None or drafting.accepted_tokens is None or tokens <= drafting.accepted_tokens:
        return None
    return Interval(tokens / (tokens - drafting.accepted_tokens), math.nan, math.nan, len(samples))


def _acceptance_length(drafting: Acceptance | None) -> float | None:
    if drafting is None or not drafting.drafts or drafting.accepted_tokens is None:
        return None
    return 1 + drafting.accepted_tokens / drafting.drafts


def _shares(drafting: Acceptance | None) -> tuple[float, ...]:
    if drafting is None or not drafting.drafts:
        return ()
    return tuple(accepted / drafting.drafts for accepted in drafting.per_position)
