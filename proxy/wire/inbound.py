"""One client request and the answer to it, whatever server protocol carries them.

``Head`` is how the request begins. ``Inbound`` is the client's side of a relay. Two forms exist: ``proxy.wire.server`` writes to the
socket itself, ``proxy.wire.portable`` speaks ASGI. Both hand the finished request to the door and
are driven by the relay through these methods; neither knows what a lane is.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from proxy import errors
from proxy.surfaces.base import Surface
from proxy.wire.headers import Headers, first


class Passport(NamedTuple):
    """Who asks, by the headers of a request."""

    app: str
    may_enter: bool = False
    """Its key is right, or none is needed."""
    wanted_id: str | None = None
    """A request id of the client's own."""
    forced_lane: str | None = None
    expected_output_tokens: int | None = None
    origin: bytes | None = None
    """Set where a page of that origin may read the answer (CORS)."""


class Head:
    """A request without its body, and what follows from it alone. Clients repeat their heads, so that one object stands
    for many requests, of one connection or of several: what was once worked out from it stays with it."""

    __slots__ = (
        "content_coding",
        "content_type",
        "headers",
        "http_10",
        "method",
        "onward",
        "passport",
        "passport_at",
        "path",
        "query",
    )

    def __init__(self, method: bytes, path: bytes, query: bytes, headers: Headers, http_10: bool = False) -> None:
        self.method = method
        self.path = path
        """As sent, percent-encoding kept, without the query."""
        self.query = query
        self.headers = headers
        """Names in lower case, order and duplicates kept. Content-Length may be that of an earlier request."""
        self.http_10 = http_10
        self.content_type = (first(headers, b"content-type") or b"").decode("latin-1")
        self.content_coding = first(headers, b"content-encoding")
        self.passport: Passport | None = None
        self.passport_at = -1
        """The state of the keys it was made with (``Keys.version``)."""
        self.onward: dict[tuple[str, frozenset[bytes]], bytes] = {}
        """What goes to a backend of it: (backend, headers dropped) → lines."""


class Served(Protocol):
    """Who works on the request (the relay), told what the client does."""

    def client_left(self) -> None:
        """The client's connection is gone; work for it must stop now."""

    def stopped(self) -> None:
        """The gateway must end now; what is under way ends visibly."""

    def client_slow(self) -> None:
        """What was written waits in a full buffer; stop reading from the backend."""

    def client_ready(self) -> None:
        """The buffer drained; go on."""


class Inbound(ABC):
    """A complete request, and where its answer goes."""

    __slots__ = ("head", "id", "passport", "peer", "scheme", "served", "started", "surface")

    surface: Surface
    head: Head
    id: str
    """What the door calls it."""
    peer: str
    """The client's address."""
    scheme: str
    passport: Passport | None
    """What the door read from the headers."""
    served: Served | None
    started: bool
    """The status line was sent."""

    @abstractmethod
    def body(self) -> bytes:
        """The request body, transfer coding removed, content coding kept."""

    @abstractmethod
    def start(self, status: int, reason: bytes | None, lines: list[bytes], length: int | None) -> None:
        """Send the head. ``lines`` are whole header lines, sometimes several in one piece; ``length`` None means that
        only the end tells."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send body bytes."""

    @abstractmethod
    def write_chunks(self, data: bytes, payload: bytes) -> None:
        """As ``write(payload)``, which ``data`` holds in whole chunks of HTTP/1.1."""

    @abstractmethod
    def finish(self, trailers: Headers) -> None:
        """The answer is complete."""

    @abstractmethod
    def answer(self, status: int, reason: bytes | None, lines: list[bytes], data: bytes) -> None:
        """``start``, ``write`` and ``finish`` of an answer that is all there and whose status allows a body."""

    @abstractmethod
    def abort(self) -> None:
        """End so that the client can tell the answer is not complete; what was written before still arrives."""


def answer_error(inbound: Inbound, error: errors.GatewayError, dialect: str, lines: list[bytes]) -> None:
    """Answer with an error of our own, in the surface's dialect."""
    data = errors.body(error, dialect)
    head = [*lines, b"content-type: application/json\r\n"]
    if error.retry_after_seconds is not None:
        head.append(b"retry-after: %d\r\n" % max(1, round(error.retry_after_seconds)))
    inbound.answer(error.status, None, head, data)
