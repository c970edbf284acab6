"""What a simulated run comes to: figures per policy, regret against the best, and the verdict on fleets."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policies.simulation import Served

CLEAR = 0.02
"""Fleets whose mean latencies differ by less than this are called equal: a modelled 2 % is nothing to buy hardware on."""


class Spread(NamedTuple):
    """Mean and quantiles of one measure, in seconds."""

    mean: float
    p50: float
    p99: float


class Figures(NamedTuple):
    """One run in numbers. All seconds; simulated, not measured on any GPU."""

    requests: int
    latency: Spread
    """Arrival to last token."""
    ttft: Spread
    """Arrival to first token."""
    tpot: Spread
    """Seconds per output token after the first, over requests with at least two."""
    tokens_per_second: float
    """Output tokens over the time from the first arrival to the last end."""
    speculative_share: float
    """Of the requests."""
    moves: int
    """Times a request was taken from a stalled backend and asked again."""


def spread(values: Sequence[float]) -> Spread:
    """Mean, median and 99th percentile (nearest rank). Zeros for an empty list: nothing took any time."""
    if not values:
        return Spread(0.0, 0.0, 0.0)
    ranked = sorted(values)
    last = len(ranked) - 1
    return Spread(sum(ranked) / len(ranked), ranked[round(0.50 * last)], ranked[round(0.99 * last)])


def figures(served: Sequence[Served], speculative: frozenset[str]) -> Figures:
    """Sum up a run; ``speculative`` names the backends of that lane."""
    start = min(one.job.at for one in served)
    end = max(one.ended_at for one in served)
    return Figures(
        requests=len(served),
        latency=spread([one.latency for one in served]),
        ttft=spread([one.first_at - one.job.at for one in served]),
        tpot=spread([pace for one in served if (pace := one.seconds_per_token) is not None]),
        tokens_per_second=sum(one.job.output_tokens for one in served) / max(end - start, 1e-9),
        speculative_share=sum(one.backend in speculative for one in served) / len(served),
        moves=sum(one.moves for one in served),
    )


def regrets(means: Mapping[str, float]) -> dict[str, float]:
    """How much worse than the best each policy is, as a share: 0 for the best, 0.05 for 5 % worse."""
    best = min(means.values())
    return {name: mean / best - 1.0 for name, mean in means.items()}


class FleetVerdict(NamedTuple):
    """Which mix of servers this traffic wants."""

    best: str
    """``split``, ``all-speculative`` or ``all-plain``."""
    clear: bool
    """False when the runner-up is within ``CLEAR``."""
    against: Mapping[str, float]
    """Mean latency of every fleet relative to the best, as a share."""


def fleet_verdict(means: Mapping[str, float]) -> FleetVerdict:
    """Judge fleets of equal size by mean latency. Needs at least one."""
    against = regrets(means)
    ranked = sorted(against, key=lambda name: against[name])
    clear = len(ranked) < 2 or against[ranked[1]] >= CLEAR
    return FleetVerdict(ranked[0], clear, against)
