"""The meter for answers nobody generates token by token: audio, embeddings, scores."""

from proxy.meter.base import Facts

_NO_FACTS = Facts()


class Passing:
    """Passes everything on and learns nothing; see ``Meter``."""

    __slots__ = ("events", "first_token_at")

    def __init__(self) -> None:
        self.first_token_at: float | None = None
        self.events = 0

    def feed(self, data: bytes, at: float) -> bytes:
        """See ``Meter``."""
        return data

    def end(self, at: float) -> bytes:
        """See ``Meter``."""
        return b""

    def facts(self) -> Facts:
        """See ``Meter``."""
        return _NO_FACTS
