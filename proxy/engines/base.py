"""What the gateway must know about an inference engine; one file and one entry in ``proxy.engines.ENGINES`` each."""

from collections.abc import Mapping
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
    method: str | None = None
    """The engine's own name for how it drafts: ``ngram``, ``eagle3``, ``EAGLE`` …"""
    drafts_always: bool | None = None
    """False for methods that draft only when they find a match (n-gram, suffix); None when it does not tell."""


SILENT = Discovered("unknown", (), None)
"""What a backend says that has not been asked yet."""


class Told(NamedTuple):
    """What an engine's own pages say beyond the model list; None where they do not."""

    speculative: bool | None = None
    depth: int | None = None
    method: str | None = None
    max_requests: int | None = None
    max_context_tokens: int | None = None
    version: str | None = None


Pages = Mapping[str, object]
"""Path asked → its JSON answer; a path that did not answer with JSON is missing."""


class Engine(Protocol):
    """One engine's habits."""

    @property
    def name(self) -> str:
        """Its name in configurations, journals and metrics."""

    @property
    def takes_usage(self) -> bool:
        """``stream_options.include_usage`` may be injected into streams."""

    @property
    def refuses(self) -> tuple[str, ...]:
        """Features a *speculating* backend of this engine refuses or mis-serves, as in ``Arrived.features``."""

    @property
    def one_event_per_step(self) -> bool:
        """A stream event carries what one step accepted (vLLM), not one token (llama.cpp)."""

    @property
    def metrics_path(self) -> str:
        """Where its Prometheus page is."""

    @property
    def prefix(self) -> str:
        """What its metrics' names start with; empty when it has none of its own."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Values of ``owned_by`` in its model list."""

    @property
    def asks(self) -> tuple[str, ...]:
        """Paths whose JSON ``tell`` wants to see."""

    def read_metrics(self, page: str) -> Scrape:
        """Never fails: what cannot be read is None."""

    def refused_feature(self, status: int, body: bytes, asked: tuple[str, ...] = ()) -> str | None:
        """The feature an answer refuses because the lane speculates, else None.

        Engines name several features in one message; of those, one in ``asked`` (the request's own features) wins.
        ``other`` when the refusal is of that kind and names nothing known.
        """

    def tell(self, pages: Pages, scrape: Scrape | None) -> Told:
        """What its pages and its metrics (None: unreadable) say of it. Never fails."""
