"""The client of a request that the gateway makes itself: there is no socket, and nobody waits for the answer."""

from proxy.surfaces.base import Surface
from proxy.wire.headers import Headers
from proxy.wire.inbound import Head, Inbound, Passport, Served

APP = "draftlane-probe"
"""What a request of our own says it comes from."""


class Nobody(Inbound):
    """A client that reads everything and keeps nothing."""

    def __init__(self, surface: Surface, name: str, body: bytes) -> None:
        self.surface = surface
        headers: Headers = [(b"content-type", b"application/json"), (b"user-agent", APP.encode())]
        self.head = Head(b"POST", surface.paths[0].encode(), b"", headers)
        self.id = name
        self.peer = "127.0.0.1"
        self.scheme = "http"
        self.passport: Passport | None = None
        self.served: Served | None = None
        self.started = False
        self._body = body

    def body(self) -> bytes:
        """The request."""
        return self._body

    def start(self, status: int, reason: bytes | None, lines: list[bytes], length: int | None) -> None:
        """An answer begins."""
        self.started = True

    def write(self, data: bytes) -> None:
        """Read and forgotten; the meter has seen it."""

    def write_chunks(self, data: bytes, payload: bytes) -> None:
        """As ``write``."""

    def finish(self, trailers: Headers) -> None:
        """The answer is complete."""

    def answer(self, status: int, reason: bytes | None, lines: list[bytes], data: bytes) -> None:
        """A whole answer."""
        self.started = True

    def abort(self) -> None:
        """The answer broke off."""
