"""What the gateway must know about an inference engine; one file and one entry in ``proxy.engines.ENGINES`` each."""

from typing import NamedTuple, Protocol


class Scrape(NamedTuple):
    """A ``/metrics`` page, understood. Counters are totals; None where the page does not say."""

    running: int | None = None
    waiting: int | None = None
    cache_usage: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    generated_tokens: float | None = None
    acceptance_length: float | None = None


class Discovered(NamedTuple):
    """What a live backend says of itself."""

    engine: str
    models: tuple[str, ...]
    speculative: bool | None
    """None when the backend does not tell."""
    depth: int | None = None
    max_context_tokens: int | None = None
    max_requests: int | None = None
    metrics: bool = False
    """Its ``/metrics`` page could be read."""
    version: str | None = None
    cards: tuple[dict[str, object], ...] = ()
    """The raw entries of its ``/v1/models``, kept for the merged list."""


class Engine(Protocol):
    """One engine's habits."""

    name: str
    takes_usage: bool
    """``stream_options.include_usage`` may be injected into streams."""
    refuses: tuple[str, ...]
    """Features a *speculating* backend of this engine refuses or mis-serves, as in ``Arrived.features``."""
    one_event_per_step: bool
    """A stream event carries what one step accepted (vLLM), not one token (llama.cpp)."""

    def read_metrics(self, page: str) -> Scrape:
        """Never fails: what cannot be read is None."""

    def refused_feature(self, status: int, body: bytes) -> str | None:
        """The feature a 400 complains of because the lane speculates, else None."""
