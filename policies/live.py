"""One request while it is under way: what is expected of it, and what has been measured so far."""

from typing import Final

from policies.backend import Backend
from policies.events import Arrived, Cancelled, Finished
from policies.lesson import Lesson
from policies.make import make
from policies.workload import REPEATED, gain_class

CAPPED: Final = frozenset({"length", "max_tokens", "max_output_tokens"})
"""Finish reasons of answers that were cut off."""

Times = tuple[float | None, float | None, float, float, bool]
"""Of a lesson: ``ttft_seconds``, ``decode_seconds``, ``crowd``, ``prefilled``, ``streamed``."""
NO_TIMES: Final[Times] = (None, None, 1.0, 0.0, False)


class Live:
    """Made at arrival, dropped at the end. Times are those of events."""

    __slots__ = (
        "arrived",
        "averse",
        "backend",
        "cached",
        "charge",
        "crowd_at",
        "dispatched_at",
        "expected_cached",
        "first_at",
        "gain_class",
        "home",
        "input_tokens",
        "output_level",
        "output_source",
        "output_tokens",
        "prefill_load",
        "prefilled_at",
        "presumed",
        "probe_lane",
        "repeated",
        "trial",
    )

    def __init__(self, arrived: Arrived) -> None:
        self.arrived = arrived
        self.input_tokens = 1.0
        self.output_tokens = 1.0
        self.output_level = -1
        self.output_source = ""
        self.gain_class = ""
        self.repeated = False
        self.averse = False
        """Speculation is known not to pay for this class."""
        self.probe_lane: str | None = None
        self.cached: dict[str, float] | None = None
        """Prompt tokens each backend is expected to have cached, at most all but one; None: nothing known of any."""
        self.home: str | None = None
        """Where the longest known prefix was served last."""
        self.backend: Backend | None = None
        self.dispatched_at = arrived.at
        self.charge = 0.0
        """Uncached prompt tokens counted on the backend."""
        self.expected_cached = 0.0
        self.prefill_load = 0.0
        self.first_at: float | None = None
        self.presumed = False
        """The first token was not seen but presumed (answers that do not stream)."""
        self.crowd_at = 0.0
        self.prefilled_at = 0.0
        self.trial = False
        """Sent through a half-open breaker."""

    def uncached(self, backend: str) -> float:
        """Prompt tokens this backend would have to prefill; at least 1."""
        return self.input_tokens if self.cached is None else self.input_tokens - self.cached.get(backend, 0.0)


def lesson(live: Live, backend: Backend, ended: Finished | Cancelled) -> Lesson:
    """What the end of a request teaches. A cancelled one teaches its length only, and that as a lower bound."""
    return _finished(live, backend, ended) if isinstance(ended, Finished) else _cancelled(live, backend, ended)


def _cancelled(live: Live, backend: Backend, ended: Cancelled) -> Lesson:
    tokens = ended.completion_tokens or ended.events or None
    return _lesson(live, backend, live.gain_class, live.repeated, output_tokens=tokens, censored=True)


def _finished(live: Live, backend: Backend, ended: Finished) -> Lesson:
    tokens = _tokens(backend, ended)
    capped = ended.finish_reason in CAPPED
    copied = ended.output_repeats and not live.repeated
    ttft, decode, crowd, prefilled, streamed = _times(live, backend, ended.at)
    return _lesson(
        live,
        backend,
        gain_class(live.arrived, True) if copied else live.gain_class,
        live.repeated or copied,
        ended.prompt_tokens,
        ended.cached_tokens,
        tokens,
        capped,
        capped,
        ended.steps,
        ended.draft_tokens,
        ended.accepted_tokens,
        ended.accepted_per_position[0] if ended.accepted_per_position else None,
        _steps(live, backend, ended, tokens),
        ttft,
        decode,
        crowd,
        prefilled,
        streamed,
        ended.status,
    )


def _lesson(
    live: Live,
    backend: Backend,
    class_: str,
    repeated: bool,
    prompt_tokens: int | None = None,
    cached_tokens: int | None = None,
    output_tokens: int | None = None,
    censored: bool = False,
    hit_cap: bool = False,
    drafts: int | None = None,
    draft_tokens: int | None = None,
    accepted_tokens: int | None = None,
    first_accepted: int | None = None,
    steps: float | None = None,
    ttft_seconds: float | None = None,
    decode_seconds: float | None = None,
    crowd: float = 1.0,
    prefilled: float = 0.0,
    streamed: bool = False,
    status: int = 200,
) -> Lesson:
    """By position, and in one place: names cost a request 3 µs."""
    # long: one line per field
    arrived = live.arrived
    prefix, prefix_bytes = arrived.prefixes[-1] if arrived.prefixes else (0, 0)
    return make(
        Lesson,
        backend.name,
        backend.lane,
        arrived.model,
        arrived.app,
        class_,
        arrived.system,
        ",".join(arrived.features),
        arrived.content,
        arrived.temperature is None or arrived.temperature > 0.0,
        repeated,
        arrived.prompt_bytes,
        arrived.media,
        live.input_tokens,
        prompt_tokens,
        cached_tokens,
        live.expected_cached,
        arrived.cap,
        output_tokens,
        censored,
        hit_cap,
        live.output_tokens,
        live.output_level,
        drafts,
        draft_tokens,
        accepted_tokens,
        first_accepted,
        steps,
        ttft_seconds,
        live.prefill_load,
        decode_seconds,
        crowd,
        prefilled,
        streamed,
        max(1, arrived.n),
        prefix,
        prefix_bytes,
        status,
    )


def _tokens(backend: Backend, ended: Finished) -> int | None:
    if ended.completion_tokens is not None:
        return ended.completion_tokens
    return ended.events if ended.events and not backend.one_event_per_step else None


def _steps(live: Live, backend: Backend, ended: Finished, tokens: int | None) -> float | None:
    """Engine steps of the decode. Every step yields one token plus those accepted, whatever the drafter does."""
    if not backend.speculative or tokens is None or live.arrived.n > 1:
        return None
    if ended.accepted_tokens is not None:
        return max(1.0, tokens - 1.0 - ended.accepted_tokens)
    if ended.steps:
        return float(ended.steps)
    if backend.one_event_per_step and ended.events > 1:
        return min(tokens - 1.0, ended.events - 1.0) if tokens > 1 else None
    return None


def _half_read(backend: Backend) -> float:
    """Prompt tokens read of the prompt under way: half of one, in the mean; a prompt counts when it is done."""
    return 0.5 * min(backend.prompt_mean, backend.waiting_tokens)


def _times(live: Live, backend: Backend, at: float) -> Times:
    """Decode time, crowd and foreign prefill. What did not stream gets its expected time to first token deducted."""
    if live.arrived.n > 1:
        return NO_TIMES
    duration = at - live.dispatched_at
    streamed = live.first_at is not None and not live.presumed
    if live.first_at is not None:
        first = live.first_at if streamed else min(live.first_at, live.dispatched_at + 0.5 * duration)
    else:
        first = live.dispatched_at + min(0.5 * duration, backend.speed.start + backend.prefill * live.prefill_load)
    seconds = at - first
    if seconds <= 0.0:
        return NO_TIMES
    span = seconds if streamed else max(seconds, at - (live.first_at or live.dispatched_at))
    crowd = (backend.crowd_integral - live.crowd_at) / span
    prefilled = max(0.0, backend.prefilled - live.prefilled_at) + _half_read(backend)
    ttft = first - live.dispatched_at if streamed else None
    return ttft, seconds, crowd if crowd > 1.0 else 1.0, prefilled, streamed


__all__ = ["REPEATED", "Live", "lesson"]
