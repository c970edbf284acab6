"""What a dialect must be able to tell of its events and documents."""

from typing import NamedTuple, Protocol

from proxy.meter.tally import Tally


class Seen(NamedTuple):
    """What one stream event was."""

    content: bool = False
    """It carries generated text, reasoning or a tool call."""
    usage_only: bool = False
    """It has an empty list of choices and a usage object: what ``include_usage`` adds."""


NOTHING = Seen()
CONTENT = Seen(content=True)
USAGE_ONLY = Seen(usage_only=True)


class Reader(Protocol):
    """One dialect. Fills its tally; never fails."""

    tally: Tally
    text_keys: tuple[bytes, ...]
    """Keys whose string value is the generated text of an event."""

    def event(self, payload: bytes) -> Seen:
        """One stream event's data."""

    def document(self, payload: bytes) -> None:
        """A whole answer that is one JSON document."""
