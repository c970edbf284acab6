"""What an API surface must tell the gateway, and what it hears back.

A surface is one file and one entry in ``proxy.surfaces.SURFACES``. It reads a request body into
``Asked`` (a copy is looked at, the bytes themselves go on untouched), splices the few bytes that must
change, and names the sans-IO ``Reader`` of its answers.
"""

from collections.abc import Callable
from typing import Protocol

from proxy.meter.base import Facts, Meter
from proxy.meter.reader import Reader

__all__ = ["Asked", "Facts", "Meter", "Reader", "Surface"]


class Asked:
    """What a request asks for, as far as routing and metering need it. Field meanings: ``policies.events.Arrived``.

    A class and no named tuple: compiled, it is made in a tenth of the time (55 of 707 ns with most of its fields).
    """

    __slots__ = (
        "cap",
        "content",
        "features",
        "fingerprint",
        "has_stream_options",
        "media",
        "model",
        "n",
        "prefixes",
        "prompt_bytes",
        "prompt_tokens",
        "sample",
        "stream",
        "system",
        "temperature",
        "text_left_out",
        "wants_usage",
    )

    def __init__(
        self,
        model: str | None = None,
        stream: bool = False,
        prompt_bytes: int = 0,
        prompt_tokens: int | None = None,
        media: int = 0,
        cap: int | None = None,
        n: int = 1,
        temperature: float | None = None,
        features: tuple[str, ...] = (),
        content: str = "text",
        system: int = 0,
        fingerprint: int = 0,
        prefixes: tuple[tuple[int, int], ...] = (),
        wants_usage: bool = False,
        has_stream_options: bool = False,
        sample: Callable[[], str] = str,
        text_left_out: bool = False,
    ) -> None:
        self.model = model
        self.stream = stream
        self.prompt_bytes = prompt_bytes
        self.prompt_tokens = prompt_tokens
        self.media = media
        self.cap = cap
        self.n = n
        self.temperature = temperature
        self.features = features
        self.content = content
        self.system = system
        self.fingerprint = fingerprint
        self.prefixes = prefixes
        self.wants_usage = wants_usage
        """The client itself asked for usage in the stream (``stream_options.include_usage``)."""
        self.has_stream_options = has_stream_options
        self.sample = sample
        """The prompt's text where it is short enough for an exact count, else nothing; made when asked for, never logged."""
        self.text_left_out = text_left_out
        """A long text in it was not parsed (``proxy.surfaces.long_text``)."""


class Surface(Protocol):
    """One API surface."""

    name: str
    paths: tuple[str, ...]
    """Paths it serves, without a trailing slash; ``/v1`` and bare forms both."""
    dialect: str
    """Error dialect: ``openai`` or ``anthropic``."""
    routed: bool
    """False: nothing is generated, the request is only proxied (embeddings, tokenize …)."""

    def read(self, body: bytes, content_type: str) -> Asked:
        """Raises ``proxy.errors.BadRequest`` for bodies no backend could take (not JSON, not an object …)."""

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """The body to send: ``model`` replaced where not None, usage asked for where wanted; all other bytes kept."""

    @property
    def reader(self) -> Callable[[], Reader] | None:
        """Makes what reads its answers, event by event or whole; None where nothing is generated."""

    def failure_event(self, message: str, code: str) -> bytes:
        """Bytes that show a failure inside a running stream of this dialect."""
