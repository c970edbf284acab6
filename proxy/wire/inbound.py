"""One client request and the answer to it, whatever server protocol carries them.

``Inbound`` is the client's side of a relay. Two forms exist: ``proxy.wire.server`` writes to the
socket itself, ``proxy.wire.portable`` speaks ASGI. Both hand the finished request to the door and
are driven by the relay through these methods; neither knows what a lane is.
"""

from typing import NamedTuple, Protocol

from proxy import errors
from proxy.surfaces.base import Surface
from proxy.wire.client import Headers


class Passport(NamedTuple):
    """What the headers of a request say."""

    id: str
    app: str
    forced_lane: str | None = None
    expected_output_tokens: int | None = None
    origin: bytes | None = None
    """Set where a page of that origin may read the answer (CORS)."""


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


class Inbound(Protocol):
    """A complete request, and where its answer goes."""

    surface: Surface
    method: bytes
    path: bytes
    """Path as sent, percent-encoding kept, without the query."""
    query: bytes
    headers: Headers
    """Names in lower case, order and duplicates kept."""
    http_10: bool
    peer: str
    """The client's address."""
    scheme: str
    passport: Passport | None
    """What the door read from the headers."""
    served: Served | None
    started: bool
    """The status line was sent."""

    def body(self) -> bytes:
        """The request body, transfer coding removed, content coding kept."""

    def start(self, status: int, reason: bytes | None, lines: list[bytes], length: int | None) -> None:
        """Send the head. ``lines`` are whole header lines, sometimes several in one piece; ``length`` None means that
        only the end tells."""

    def write(self, data: bytes) -> None:
        """Send body bytes."""

    def write_chunks(self, data: bytes, payload: bytes) -> None:
        """As ``write(payload)``, which ``data`` holds in whole chunks of HTTP/1.1."""

    def finish(self, trailers: Headers) -> None:
        """The answer is complete."""

    def abort(self) -> None:
        """End so that the client can tell the answer is not complete; what was written before still arrives."""


def answer_error(inbound: Inbound, error: errors.GatewayError, dialect: str, lines: list[bytes]) -> None:
    """Answer with an error of our own, in the surface's dialect."""
    data = errors.body(error, dialect)
    head = [*lines, b"content-type: application/json\r\n"]
    if error.retry_after_seconds is not None:
        head.append(b"retry-after: %d\r\n" % max(1, round(error.retry_after_seconds)))
    inbound.start(error.status, None, head, len(data))
    inbound.write(data)
    inbound.finish([])
