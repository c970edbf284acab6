"""What a simulated run is fed with: requests with their luck, and how often drafts are accepted.

All chance is drawn here, before the run, from a counter-based generator: a draw is a function of (seed,
stream, index) and of nothing else. So every policy meets the same requests with the same acceptance, however
it orders them (common random numbers: differences between policies are not noise), and a run is the same on
every machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import cos, exp, log, pi, sqrt
from typing import NamedTuple

_MASK = (1 << 64) - 1
DRAW, CHOICE, LUCK, NOISE, KIND, BYTES = range(6)
"""Streams of draws: exploration, which one, acceptance of the request, chance of its steps, content, bytes per token."""


def uniform(seed: int, stream: int, index: int) -> float:
    """A draw in [0, 1): SplitMix64 (Steele, Lea, Flood 2014) of the counter, two rounds against correlated seeds."""
    mixed = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1B54A32D192ED03 + index) & _MASK
    for _ in range(2):
        mixed = (mixed + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return (mixed >> 11) * 2.0**-53


def normal(seed: int, stream: int, index: int) -> float:
    """A standard normal draw (Box and Muller 1958)."""
    radius = sqrt(-2.0 * log(1.0 - uniform(seed, stream, 2 * index)))
    return radius * cos(2.0 * pi * uniform(seed, stream, 2 * index + 1))


def named(name: str) -> int:
    """A small number for a name, the same in every process (Python's own hash is salted): FNV-1a."""
    mixed = 0xCBF29CE484222325
    for byte in name.encode():
        mixed = ((mixed ^ byte) * 0x100000001B3) & _MASK
    return mixed


class Acceptance(NamedTuple):
    """How drafts fare on one kind of content."""

    length: float
    """AL: tokens per verification step, bonus token included, over all steps."""
    variance: float
    """Of the tokens of one step."""
    spread: float
    """Coefficient of variation of AL − 1 between requests."""
    drafted: float = 1.0
    """m: share of steps that carry drafts; below 1 for methods that draft only when they find a match."""

    @classmethod
    def of_histogram(cls, histogram: Sequence[float], spread: float, drafted: float = 1.0) -> "Acceptance":
        """From shares of steps that accepted exactly 0, 1, … k drafts (any positive total)."""
        total = sum(histogram)
        if total <= 0 or min(histogram) < 0:
            raise ValueError("a histogram needs shares >= 0 with a positive sum")
        mean = sum(j * share for j, share in enumerate(histogram)) / total
        square = sum(j * j * share for j, share in enumerate(histogram)) / total
        return cls(1.0 + mean, max(0.0, square - mean * mean), spread, drafted)

    @classmethod
    def of_chance(cls, alpha: float, depth: int, spread: float, hits: float = 1.0) -> "Acceptance":
        """A drafter that drafts in a share ``hits`` of the steps, each token accepted with chance ``alpha``."""
        shares = [alpha**j * (1.0 - alpha) for j in range(depth)] + [alpha**depth]
        return cls.of_histogram([1.0 - hits + hits * shares[0], *(hits * share for share in shares[1:])], spread, hits)


class Drafter(NamedTuple):
    """A speculation method: depth, and acceptance per kind of content."""

    name: str
    depth: int
    kinds: Mapping[str, Acceptance]

    def acceptance(self, kind: str) -> Acceptance:
        """Acceptance on ``kind``; a kind nobody measured takes the plain mean of the others."""
        known = self.kinds.get(kind)
        if known is not None:
            return known
        every = list(self.kinds.values())
        return Acceptance(*(sum(column) / len(every) for column in zip(*every, strict=True)))

    def steps(self, kind: str, tokens: int, luck: float, noise: float) -> tuple[int, float]:
        """Verification steps that ``tokens`` tokens after the first take, and the share of them that carry drafts.

        ``luck`` and ``noise`` are standard normal. The request's own AL − 1 is log-normal around the kind's
        (so it is never below 0); given AL, the number of steps is a renewal count: mean tokens / AL, variance
        tokens·σ²/AL³ (Cox 1962), rounded, and never outside what the depth allows.
        """
        if tokens <= 0:
            return 0, 0.0
        usual = self.acceptance(kind)
        width = log(1.0 + usual.spread * usual.spread)
        extra = (usual.length - 1.0) * exp(sqrt(width) * luck - width / 2.0)
        length = min(1.0 + extra, self.depth + 1.0)
        mean = tokens / length
        count = round(mean + noise * sqrt(tokens * usual.variance / length**3))
        steps = min(tokens, max(count, -(-tokens // (self.depth + 1))))
        return steps, min(
            1.0, usual.drafted * (length - 1.0) / max(usual.length - 1.0, 1e-9)
        ) if usual.drafted < 1 else 1.0


class Asked(NamedTuple):
    """One line of a trace: who asked when for how much."""

    at: float
    """Seconds since the trace's start."""
    app: str
    input_tokens: int
    output_tokens: int


class Job(NamedTuple):
    """A request of a simulated run, with all the chance it will meet."""

    at: float
    id: str
    app: str
    kind: str
    """Content kind: a key of ``Drafter.kinds``."""
    input_tokens: int
    output_tokens: int
    prompt_bytes: int
    luck: float
    noise: float
    draw: float
    choice: float


def jobs(trace: Iterable[Asked], seed: int, kinds: Mapping[str, str], default_kind: str = "") -> list[Job]:
    """Requests of a run. ``kinds`` maps applications to content; others get ``default_kind``, or one by lot.

    Bytes per token are a property of an application's text: 3 to 5, drawn by its name; policies are told
    bytes and must learn the factor.
    """
    lot = sorted(set(kinds.values()))
    made = []
    for index, asked in enumerate(trace):
        kind = kinds.get(asked.app) or default_kind or lot[int(uniform(seed, KIND, named(asked.app)) * len(lot))]
        made.append(
            Job(
                asked.at,
                f"r{index}",
                asked.app,
                kind,
                max(1, asked.input_tokens),
                max(1, asked.output_tokens),
                round(max(1, asked.input_tokens) * (3.0 + 2.0 * uniform(seed, BYTES, named(asked.app)))),
                normal(seed, LUCK, index),
                normal(seed, NOISE, index),
                uniform(seed, DRAW, index),
                uniform(seed, CHOICE, index),
            )
        )
    return made


def at_rate(trace: Sequence[Asked], rate: float) -> list[Asked]:
    """The same arrivals, stretched or squeezed to ``rate`` requests per second in the mean."""
    span = trace[-1].at - trace[0].at
    scale = (len(trace) - 1) / (rate * span) if span > 0 else 1.0
    return [asked._replace(at=(asked.at - trace[0].at) * scale) for asked in trace]
