"""What one finished request teaches, as flat facts.

A replica makes a ``Lesson`` of each request that ended on it, learns from it, and sends it to the others, which fold the
same value in (``PeerLearnt.facts`` holds the fields in this order). Therefore: no reference to anything live, only
numbers and names, and every figure already measured. Fields are appended, never moved.
"""

from typing import NamedTuple


class Lesson(NamedTuple):
    """Facts of one finished or cancelled request."""

    backend: str
    lane: str
    model: str
    app: str
    gain_class: str
    """``policies.workload.gain_class``."""
    system: int
    features: str
    """Comma-joined, sorted."""
    content: str
    sampled: bool
    """Temperature not known to be zero."""
    repeated: bool
    """The prompt was seen before, or the answer copies earlier text: teaches its own class only."""
    prompt_bytes: int
    media: int
    expected_input_tokens: float
    """As estimated at arrival, cached ones included; output keys hold its half-octave."""
    prompt_tokens: int | None
    cached_tokens: int | None
    expected_cached_tokens: float
    """What the prefix memory said before the request was sent."""
    cap: int | None
    output_tokens: int | None
    """All answers together when ``n`` > 1."""
    censored: bool
    """The output would have been at least this long: cancelled, or cut off by its cap."""
    hit_cap: bool
    predicted_tokens: float
    predicted_level: int
    """Index into ``policies.workload.LEVELS``; -1 for the default or the client's own word."""
    drafts: int | None
    """Verification steps the engine reported."""
    draft_tokens: int | None
    accepted_tokens: int | None
    first_accepted: int | None
    """Steps in which the first draft token was accepted."""
    steps: float | None
    """Engine steps of the decode, drafting or not; None when nothing tells."""
    ttft_seconds: float | None
    """Dispatch to first token; None for answers that do not stream."""
    prefill_load: float
    """Own uncached input plus prompt tokens waiting on the backend at dispatch."""
    decode_seconds: float | None
    """First token to end."""
    crowd: float
    """Mean requests in flight on the backend during the decode, this one included."""
    prefilled: float
    """Prompt tokens of others prefilled on the backend during the decode."""
    streamed: bool
    """False: ``decode_seconds`` was estimated from the whole duration."""
    parallel: int
    """Answers asked for at once (``n``)."""
    prefix: int = 0
    """Fingerprint of the longest message border, now in the backend's cache."""
    prefix_bytes: int = 0
    status: int = 200


def cancelled(lesson: Lesson) -> bool:
    """Whether the client left: its answer has a least length and no times. A cap cuts an answer off, too, but ends it."""
    return lesson.censored and not lesson.hit_cap


def tokens_per_step(lesson: Lesson) -> float | None:
    """Mean tokens per engine step over the decode (the first token comes from the prefill)."""
    if lesson.output_tokens is None or lesson.steps is None or lesson.steps < 1.0:
        return None
    return max(1.0, (lesson.output_tokens - 1) / lesson.steps)


def seconds_per_token(lesson: Lesson) -> float | None:
    """TPOT: (end − first token) ÷ (tokens − 1). The mean gap between chunks would be 5 times off under speculation."""
    if lesson.output_tokens is None or lesson.output_tokens < 2 or lesson.decode_seconds is None:
        return None
    return lesson.decode_seconds / (lesson.output_tokens - 1)
