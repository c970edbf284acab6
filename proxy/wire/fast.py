"""A request on the fast way: filled by the parser's callbacks, answered straight to the socket."""

from proxy.errors import GatewayError
from proxy.surfaces.base import Surface
from proxy.wire.door import too_large
from proxy.wire.headers import BODILESS, Headers, status_line
from proxy.wire.inbound import Head, Inbound, Passport, Served, answer_error
from proxy.wire.line import Line

SWALLOWED_BYTES = 16 * 1024 * 1024
"""Body bytes read and thrown away after an early refusal, so that the client sees the answer and not a reset."""


class FastInbound(Inbound):
    """A request on the fast way; stands in for uvicorn's cycle, whose few attributes it shares."""

    __slots__ = (
        "_bodiless",
        "_chunked",
        "_line",
        "_parts",
        "_size",
        "_unsent",
        "answered",
        "current",
        "disconnected",
        "expects_continue",
        "keep_alive",
        "received",
        "response_complete",
    )

    def __init__(self, line: Line, surface: Surface, head: Head, keep_alive: bool) -> None:
        self._line = line
        self.surface = surface
        self.head = head
        self.keep_alive = keep_alive
        self.id = ""
        self.peer = line.client[0] if line.client else ""
        self.scheme = line.scheme
        self.passport: Passport | None = None
        self.served: Served | None = None
        self.started = self.answered = self.current = self.received = self._chunked = False
        self.response_complete = self.disconnected = self.expects_continue = False
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._bodiless = head.method == b"HEAD"
        self._unsent: list[bytes] = []
        """Of the answer's head, until there is a body to go with it."""

    # -- the request, told by the protocol
    def take(self, data: bytes | memoryview) -> None:
        """A piece of the request body."""
        self._size += len(data)
        if self.answered:
            if self._size > SWALLOWED_BYTES:
                self._line.transport.close()
        elif self._size > self._line.door.max_body_bytes:
            self.refuse(too_large(self._line.door.max_body_bytes))
        else:
            self._parts.append(data)

    def complete(self) -> None:
        """The request is all here."""
        self.received = True
        if self.answered:
            self._leave()
        elif self.current:
            self._line.door.enter(self, self.surface)

    def admit(self, length: int | None) -> bool:
        """The requests before this one on its connection are answered. False: it was refused."""
        self.current = True
        refusal = self._line.door.refuse_early(self, length)
        if refusal is not None:
            self.refuse(refusal)
        return refusal is None

    def begin(self) -> None:
        """Work on it, if it is all here."""
        if self.received and not self.answered:
            self._line.door.enter(self, self.surface)

    def refuse(self, error: GatewayError) -> None:
        """Answer with an error before, or instead of, working on it."""
        self._parts = []
        if not self.received:
            self.keep_alive = False
        self._line.door.refused(self, error)
        answer_error(self, error, self.surface.dialect, self._line.door.error_lines(self))

    @property
    def waiting_bytes(self) -> int:
        """Body bytes held in memory."""
        return 0 if self.answered else self._size

    # -- Inbound, told by the relay
    def body(self) -> bytes:
        """See ``Inbound``. Parts are joined once and let go by the relay's copy."""
        parts = self._parts
        if len(parts) == 1 and type(parts[0]) is bytes:
            return parts[0]
        body = b"".join(parts)
        self._parts = [body]
        return body

    def start(self, status: int, reason: bytes | None, lines: list[bytes], length: int | None) -> None:
        """See ``Inbound``. The head waits for the first body bytes: one write for both."""
        self.started = True
        self._parts = []
        head = [status_line(status, reason), *lines]
        if length is not None:
            head.append(b"content-length: %d\r\n" % length)
        elif status not in BODILESS and not self._bodiless:
            if self.head.http_10:
                self.keep_alive = False
            else:
                self._chunked = True
                head.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")
        self._unsent = head

    def write(self, data: bytes) -> None:
        """See ``Inbound``."""
        if not data or self.disconnected or self._bodiless:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._unsent:
            self._unsent.append(data)
            data = b"".join(self._unsent)
            self._unsent = []
        transport = self._line.transport
        if not transport.is_closing():  # closed, but nobody told us yet: uvloop would raise
            transport.write(data)

    def write_chunks(self, data: bytes, payload: bytes) -> None:
        """See ``Inbound``."""
        if not self._chunked or self._unsent or self.disconnected:
            self.write(payload)
            return
        transport = self._line.transport
        if not transport.is_closing():
            transport.write(data)

    def finish(self, trailers: Headers) -> None:
        """See ``Inbound``."""
        if self.answered:
            return
        tail = self._unsent
        self._unsent = []
        if self._chunked:
            tail.append(b"0\r\n")
            tail += [b"%b: %b\r\n" % trailer for trailer in trailers]
            tail.append(b"\r\n")
        if tail and not self.disconnected and not self._line.transport.is_closing():
            self._line.transport.write(b"".join(tail))
        self.answered = True
        self.served = None
        if self.received:
            self._leave()

    def answer(self, status: int, reason: bytes | None, lines: list[bytes], data: bytes) -> None:
        """See ``Inbound``. One write for all of it."""
        if self.answered:
            return
        self.start(status, reason, lines, len(data))
        self.answered = True
        self.served = None
        said, self._unsent = self._unsent, []
        transport = self._line.transport
        if not self.disconnected and not transport.is_closing():
            if not self._bodiless:
                said.append(data)
            transport.write(b"".join(said))
        if self.received:
            self._leave()

    def abort(self) -> None:
        """See ``Inbound``."""
        self.keep_alive = False
        self.answered = self.response_complete = True
        self.served = None
        transport = self._line.transport
        self._be_over()
        if transport is None or self.disconnected or transport.is_closing():
            return
        if self._unsent:
            transport.write(b"".join(self._unsent))
        if self._chunked or not self.head.http_10:
            transport.close()
        else:
            transport.abort()  # a close would look like the end of a close-delimited body

    def _be_over(self) -> None:
        under_way = self._line.under_way
        if self in under_way:
            under_way.remove(self)

    def _leave(self) -> None:
        self.response_complete = True
        line = self._line
        self._be_over()
        if self.disconnected:
            return
        if not self.keep_alive:
            line.transport.close()
        line.answered()
