"""What a streamed answer tells, read after it is over: reading it while the clock runs would cost what is measured."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.engines.habits import field
from proxy.meter import meter_for
from proxy.meter.base import Facts
from proxy.meter.choices import Choices
from proxy.meter.tally import json_object

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
    """The last event with text or with the finish reason; usage and ``[DONE]`` come after it."""
    facts: Facts
    acceptance: Acceptance | None


def read_answer(reads: Sequence[Read]) -> Answer:
    """Understand a chat or completions stream of any engine the gateway can meter. Never fails."""
    meter = meter_for(Choices(), "text/event-stream", "", strip_usage=False)
    for at, data in reads:
        meter.feed(data, at)
    meter.end(reads[-1][0] if reads else 0.0)
    events = events_of(reads)
    spoken = [(at, text) for at, event in events if (text := _text(event))]
    ends = [at for at, event in events if field(event, "choices", 0, "finish_reason")]
    facts = meter.facts()
    return Answer(
        text="".join(text for _, text in spoken),
        first_token_at=meter.first_token_at,
        last_token_at=max([spoken[-1][0], *ends]) if spoken else None,
        facts=facts,
        acceptance=_acceptance(facts),
    )


def events_of(reads: Iterable[Read]) -> list[tuple[float, dict[str, object]]]:
    """The JSON events of a stream, each with the time its last byte came."""
    found: list[tuple[float, dict[str, object]]] = []
    rest = b""
    for at, data in reads:
        *lines, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n")
        found += [(at, json_object(line[5:])) for line in lines if line.startswith(b"data:")]
    return found


def _text(event: object) -> str:
    choice = field(event, "choices", 0)
    parts = [
        field(choice, "text"),
        *(field(choice, "delta", key) for key in ("reasoning_content", "reasoning", "content")),
    ]
    return "".join(part for part in parts if isinstance(part, str))


def _acceptance(facts: Facts) -> Acceptance | None:
    """The engine's own word for this request.

    Only with a word per position are the engine's steps those with a draft; llama.cpp's are all of them.
    """
    if facts.draft_tokens is None and facts.accepted_tokens is None:
        return None
    positions = facts.accepted_per_position
    return Acceptance(facts.draft_tokens, facts.accepted_tokens, facts.steps if positions else None, positions)
