"""What a streamed answer tells, read after it is over: reading it while the clock runs would cost what is measured."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from proxy.engines.habits import field

Read = tuple[float, bytes]
"""(monotonic seconds, bytes of one socket read)."""


class Acceptance(NamedTuple):
    """Drafting during one request or one stretch of a run; None is "not told"."""

    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    drafts: float | None = None
    """Steps that carried a draft."""
    per_position: tuple[float, ...] = ()
    """Drafts whose first 1, 2, … tokens were accepted."""


class Answer(NamedTuple):
    """One stream, understood. Times are in the clock of the reads."""

    text: str
    first_token_at: float | None
    last_token_at: float | None
    events: int
    """Events with text in them: engine steps or tokens, depending on the engine; never used as a token count."""
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    acceptance: Acceptance | None
    error: str | None


def events_of(reads: Iterable[Read]) -> list[tuple[float, object]]:
    """The JSON events of a stream, each with the time its last byte came; what is not JSON is left out."""
    found: list[tuple[float, object]] = []
    rest = b""
    for at, data in reads:
        *lines, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n")
        found += [(at, event) for line in lines if (event := _event(line)) is not None]
    return found


def _event(line: bytes) -> object | None:
    if not line.startswith(b"data:"):
        return None
    try:
        event: object = msgspec.json.decode(line[5:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event


def read_answer(reads: Sequence[Read]) -> Answer:
    """Understand a chat or completions stream of any of the known engines. Never fails."""
    events = events_of(reads)
    spoken = [(at, text) for at, event in events if (text := _text(event))]
    ended = [at for at, event in events if field(event, "choices", 0, "finish_reason")]
    usage = _last(events, "usage")
    timings = _last(events, "timings")
    first = spoken[0][0] if spoken else None
    return Answer(
        text="".join(text for _, text in spoken),
        first_token_at=first,
        last_token_at=max([spoken[-1][0], *ended]) if spoken else None,
        events=len(spoken),
        prompt_tokens=_count(usage, "prompt_tokens"),
        cached_tokens=_count(usage, "prompt_tokens_details", "cached_tokens"),
        completion_tokens=_count(usage, "completion_tokens") or _count(timings, "predicted_n"),
        finish_reason=_finish_reason(events),
        acceptance=_acceptance([event for _, event in events]),
        error=_error(events),
    )


def _text(event: object) -> str:
    choice = field(event, "choices", 0)
    parts = [
        field(choice, "text"),
        *(field(choice, "delta", key) for key in ("reasoning_content", "reasoning", "content")),
    ]
    return "".join(part for part in parts if isinstance(part, str))


def _last(events: Sequence[tuple[float, object]], key: str) -> object:
    return next((value for _, event in reversed(events) if (value := field(event, key))), None)


def _count(value: object, *path: str) -> int | None:
    found = field(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _finish_reason(events: Sequence[tuple[float, object]]) -> str | None:
    reasons = (field(event, "choices", 0, "finish_reason") for _, event in reversed(events))
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _error(events: Sequence[tuple[float, object]]) -> str | None:
    error = _last(events, "error")
    if error is None:
        return None
    message = field(error, "message")
    return message if isinstance(message, str) else str(error)


def _acceptance(events: Sequence[object]) -> Acceptance | None:
    """The engine's own word for this request: vLLM, SGLang, llama.cpp, in this order of detail."""
    for event in reversed(events):
        if (told := field(event, "metrics", "speculative_decoding")) is not None:
            return _vllm(told)
        if (told := field(event, "sglext", "spec_tokens_details") or field(event, "meta_info")) is not None:
            return _sglang(told)
        if (told := field(event, "timings")) is not None:
            return _llamacpp(told)
    return None


def _vllm(told: object) -> Acceptance:
    histogram = field(told, "acceptance_histogram")
    counts = [float(n) for n in histogram if isinstance(n, (int, float))] if isinstance(histogram, list) else []
    return Acceptance(
        draft_tokens=_count(told, "num_draft_tokens"),
        accepted_tokens=_count(told, "num_accepted_draft_tokens"),
        drafts=_count(told, "num_spec_steps"),
        per_position=tuple(sum(counts[position:]) for position in range(1, len(counts))),
    )


def _sglang(told: object) -> Acceptance | None:
    steps = _count(told, "spec_verify_ct")
    length = field(told, "spec_accept_length")
    if not steps or not isinstance(length, (int, float)):
        return None
    rate = field(told, "spec_accept_rate")
    accepted = steps * (length - 1)
    drafted = accepted / rate if isinstance(rate, (int, float)) and rate > 0 else None
    return Acceptance(draft_tokens=drafted, accepted_tokens=accepted, drafts=steps)


def _llamacpp(told: object) -> Acceptance:
    """``draft_n`` is absent when nothing was drafted."""
    return Acceptance(_count(told, "draft_n") or 0, _count(told, "draft_n_accepted") or 0)
