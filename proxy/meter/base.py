"""What a meter is, and what it finds out."""

from abc import ABC, abstractmethod
from typing import NamedTuple


class Facts(NamedTuple):
    """What a meter learnt from an answer. Field meanings: ``policies.events.Finished``."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    events: int = 0
    steps: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_per_position: tuple[int, ...] = ()
    output_repeats: bool = False
    error: str | None = None
    """An error event inside the stream, or an error object as the answer."""
    largest_event_tokens: int | None = None
    """Most tokens one event carried, where every event tells usage; above k + 1 the engine merged steps."""


class Meter(ABC):
    """Reads an answer's body as it passes. Bytes in, bytes to forward out; it never waits and never fails."""

    __slots__ = ("events", "first_token_at")

    first_token_at: float | None
    """When the first generated token was fed, in the clock of ``feed``'s ``at``."""
    events: int
    """Content-bearing events so far."""

    @abstractmethod
    def feed(self, data: bytes, at: float) -> bytes:
        """Take body bytes (content coding included) as received; return what the client is to get now."""

    @abstractmethod
    def leaves(self, data: bytes) -> bool:
        """Whether ``feed`` will certainly return just these bytes, so that the client may have them first."""

    @abstractmethod
    def end(self, at: float) -> bytes:
        """The body is complete; return what was held back."""

    @abstractmethod
    def facts(self) -> Facts:
        """What is known now; callable at any time (a client may leave)."""
