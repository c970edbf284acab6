"""The pooled HTTP/1.1 client to the backends.

Own code because the transport is this product's core: callbacks instead of awaits, no object per
chunk, cancellation that reaches the socket at once. Parsing is httptools' (llhttp), which refuses
ambiguous framing. One connection carries one exchange at a time; idle ones wait in the pool for less
than the engines' own keep-alive of 5 s.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, cast

import httptools

from proxy.wire.answer import AnswerHead
from proxy.wire.chunks import missing_after, payload_of
from proxy.wire.headers import BODILESS, Headers
from proxy.wire.known import Known, known


class Receiver(Protocol):
    """Who hears what comes of an exchange. After ``end`` or ``failed`` nothing more is said."""

    def head(self, answer: AnswerHead, length: int | None) -> None:
        """Status line and headers arrived (1xx answers are skipped), with this Content-Length."""

    def body(self, data: bytes) -> None:
        """All body bytes of one socket read, transfer coding removed."""

    def end(self, trailers: Headers) -> None:
        """The answer is complete as its framing says."""

    def whole(self, answer: AnswerHead, body: bytes) -> bool:
        """``head``, ``body`` and ``end`` of an answer that came in one read; False: it is to be told piece by piece."""

    def again(self) -> bool:
        """A connection that was used before closed without a word. True: that was its age, and the request is to go out on a
        new one; False: it was the request's end (``failed`` follows)."""

    def failed(self, fault: str) -> None:
        """A fault of ``policies.events.FAULTS``: connect, connect-timeout, closed, garbage, truncated."""


class Address(NamedTuple):
    """Where a backend listens. ``path`` set: a Unix socket; else TCP, with TLS when ``tls`` is set."""

    host: str
    port: int
    path: str | None = None
    tls: ssl.SSLContext | None = None


class Connection(asyncio.Protocol):
    """One connection to one backend."""

    __slots__ = (
        "_answer",
        "_answered",
        "_chunked",
        "_complete",
        "_headers",
        "_keep",
        "_length",
        "_missing",
        "_parser",
        "_pieces",
        "_reason",
        "_spoiled",
        "_status",
        "_trailers",
        "exchange",
        "heard",
        "idle_since",
        "pool",
        "reused",
        "transport",
    )

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self.reused = False
        self._parser = httptools.HttpResponseParser(self)
        self._reset()

    def _reset(self) -> None:
        self.heard = False
        self._headers: Headers = []
        self._trailers: Headers = []
        self._pieces: list[bytes] = []
        self._reason = b""
        self._answer: AnswerHead | None = None
        self._status = 0
        self._answered = self._complete = self._chunked = self._spoiled = self._keep = False
        self._length: int | None = None
        self._missing = -1
        """Bytes to the next border of chunks; -1 when it is not known where that is (``proxy.wire.chunks``)."""

    # -- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:  # bytes nobody asked for: this connection is not to be trusted
            self.discard()
            return
        if self._missing == 0 and exchange.pass_on is not None:
            payload = payload_of(data)
            if payload is not None:
                exchange.pass_on(data, payload)
                return
        began = not self.heard
        self.heard = True
        if began and self._is_known(exchange, data):
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                self._deliver(exchange)
                self._fail("truncated" if self._answered else "garbage")
                return
            self._spoiled = True
        if self._pieces and self.exchange is exchange:
            self._deliver(exchange)
        if self._complete and self.exchange is exchange:
            if began and self._keep and not self._spoiled and not exchange.bodiless:
                self._remember(data)
            self._finish(exchange)
        elif self._chunked:
            self._find_border(data, began)

    def _is_known(self, exchange: "Exchange", data: bytes) -> bool:
        """Pass on a whole answer whose head came before (``proxy.wire.known``); the parser does not see it."""
        if self.pool.known is None or exchange.bodiless:
            return False
        head, answer = self.pool.known
        found = head.body_of(data)
        if found is None or len(data) != found[0] + found[1]:
            return False
        body = data[found[0] :]
        if body and exchange.receiver.whole(answer, body):
            self.heard = False
            self._release(exchange)
            return True
        self._answered = self._keep = True
        exchange.receiver.head(answer, found[1])
        if self.exchange is exchange and body:
            exchange.receiver.body(body)
        if self.exchange is exchange:
            self._finish(exchange)
        return True

    def _remember(self, data: bytes) -> None:
        """``data`` was a whole answer."""
        head = None if self._status in BODILESS else known(data, self._length)
        if head is not None and self._answer is not None:
            self.pool.known = head, self._answer

    def _find_border(self, data: bytes, began: bool) -> None:
        """Follow the chunks, so that whole ones can be told from the next read on."""
        if began:  # with the head; one that comes in two reads, or after a 1xx, is left to the parser
            single = self._answered and data[9:12] == b"%d" % self._status
            self._missing = missing_after(data, data.find(b"\r\n\r\n") + 4) if single else -1
        elif self._missing >= 0:
            left = self._missing - len(data)
            self._missing = left if left >= 0 else missing_after(data, self._missing)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.forget(self)
        exchange = self.exchange
        if exchange is None:
            return
        if self._answered and not self._chunked and self._length is None and exc is None:
            self._finish(exchange)  # delimited by the close
        else:
            self._fail("truncated" if self._answered else "closed")

    def pause_writing(self) -> None:
        """The request body waits in memory; nothing to hold back."""

    def resume_writing(self) -> None:
        """See pause_writing."""

    # -- httptools callbacks
    def on_message_begin(self) -> None:
        if self._complete:
            self._spoiled = True  # a second answer to one request
            return
        self._headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answered:
            self._trailers.append((name, value))
            return
        self._headers.append((name, value))
        low = name.lower()
        if low == b"content-length":
            self._length = int(value)
        elif low == b"transfer-encoding":
            self._chunked = True

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200 or self.exchange is None or self._spoiled:
            return
        self._answered = True
        answer = self.pool.last_answer
        if answer is None or not answer.is_of(self._status, self._reason, self._headers):
            answer = self.pool.last_answer = AnswerHead(self._status, self._reason, self._headers)
        self._answer = answer
        self.exchange.receiver.head(answer, self._length)
        if self.exchange is not None and self.exchange.bodiless:
            self._complete = True

    def on_body(self, data: bytes) -> None:
        if not self._spoiled:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._status >= 200:
            self._complete = True
            self._keep = self._parser.should_keep_alive()  # llhttp forgets it as soon as this returns

    # -- the exchange
    def take(self, exchange: "Exchange") -> None:
        """Carry an exchange from now on. The connection must be idle."""
        self.exchange = exchange
        exchange.connection = self

    def send(self, exchange: "Exchange") -> None:
        """Send the request of the exchange it carries."""
        transport = self.transport
        assert transport is not None
        if len(exchange.request_body) < 65536:
            transport.write(exchange.request_head + exchange.request_body)
        else:
            transport.writelines((exchange.request_head, exchange.request_body))

    def _deliver(self, exchange: "Exchange") -> None:
        pieces = self._pieces
        if pieces:
            self._pieces = []
            exchange.receiver.body(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _finish(self, exchange: "Exchange") -> None:
        trailers = self._trailers
        if self._keep and not exchange.bodiless and not self._spoiled:
            self._reset()
            self._release(exchange)
        else:
            self.exchange = exchange.connection = None
            self.discard()
        exchange.receiver.end(trailers)

    def _release(self, exchange: "Exchange") -> None:
        """The exchange is over as it should be; the connection may carry another one if it is still well."""
        transport = self.transport
        self.exchange = exchange.connection = None
        if transport is not None and _drained(transport):
            if exchange.paused:
                transport.resume_reading()
            self.reused = True
            self.pool.give_back(self)
        else:
            self.discard()

    def _fail(self, fault: str) -> None:
        exchange, self.exchange = self.exchange, None
        self.discard()
        if exchange is not None:
            exchange.connection = None
            if fault == "closed" and self.reused and not self.heard and exchange.receiver.again():
                exchange.connect()
            else:
                exchange.receiver.failed(fault)

    def discard(self) -> None:
        """Close at once; whatever is unsent is dropped."""
        self.pool.forget(self)
        if self.transport is not None:
            self.transport.abort()


def _drained(transport: asyncio.Transport) -> bool:
    """Open, and the whole request went out: who answers early (413) seldom reads the rest."""
    return not transport.is_closing() and not transport.get_write_buffer_size()


class Exchange:
    """One request to one backend; the handle by which the relay pauses or cancels it."""

    __slots__ = (
        "bodiless",
        "connection",
        "pass_on",
        "paused",
        "pool",
        "receiver",
        "request_body",
        "request_head",
        "task",
    )

    def __init__(self, pool: "Pool", head: bytes, body: bytes, receiver: Receiver, bodiless: bool) -> None:
        self.pool = pool
        self.request_head = head
        self.request_body = body
        self.receiver = receiver
        self.bodiless = bodiless
        """The answer has no body whatever its headers say (HEAD)."""
        self.pass_on: Callable[[bytes, bytes], None] | None = None
        """Set by a receiver that wants whole chunks as they came, instead of ``body``: (the bytes, the payload in them)."""
        self.paused = False
        self.connection: Connection | None = None
        """None while there is none yet, and when the exchange is over."""
        self.task: asyncio.Task[None] | None = None

    def send(self) -> None:
        """Send the request, on the idle connection that was found for it or on a new one."""
        if self.connection is None:
            self.connect()
        else:
            self.connection.send(self)

    def connect(self) -> None:
        """Send it on a new connection. How long that may take is the receiver's to judge, by ``connection``."""
        self.task = asyncio.get_running_loop().create_task(self.pool.connect(self))

    def cancel(self) -> None:
        """Forget the exchange and close its connection now. The receiver hears nothing more."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.exchange = None
            connection.discard()

    def pause(self) -> None:
        """Stop reading from the backend (the client is slow)."""
        if self.connection is not None and not self.paused and self.connection.transport is not None:
            self.paused = True
            self.connection.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.connection is not None and self.paused and self.connection.transport is not None:
            self.paused = False
            self.connection.transport.resume_reading()


class Pool:
    """Connections to one backend. Unbounded by itself: the judgement bounds requests in flight."""

    def __init__(self, address: Address, idle_seconds: float) -> None:
        self.address = address
        self.idle_seconds = idle_seconds
        self.known: tuple[Known, AnswerHead] | None = None
        """The head of a recent answer that may be told by its bytes."""
        self.last_answer: AnswerHead | None = None
        """The head that was parsed last; an answer that says the same to the letter shares it."""
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()

    def prepare(self, head: bytes, body: bytes, receiver: Receiver, bodiless: bool = False) -> Exchange:
        """An exchange with an idle connection for it, the most recently used one, where there is any."""
        exchange = Exchange(self, head, body, receiver, bodiless)
        connection = self._take()
        if connection is not None:
            connection.take(exchange)
        return exchange

    def _take(self) -> Connection | None:
        youngest = time.monotonic() - self.idle_seconds
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > youngest and connection.transport and not connection.transport.is_closing():
                return connection
            connection.discard()
        return None

    async def connect(self, exchange: Exchange) -> None:
        """Open a connection and send the exchange over it; its receiver hears of any failure."""
        fault = None
        try:
            _, connection = await self._opening(asyncio.get_running_loop())
        except TimeoutError:  # the system's
            fault = "connect-timeout"
        except (OSError, ssl.SSLError, UnicodeError):
            fault = "connect"
        else:
            if connection.transport is None or connection.transport.is_closing():
                fault = "closed"  # lost before we came to use it
        exchange.task = None
        if fault is not None:
            exchange.receiver.failed(fault)
        else:
            self._all.add(connection)
            connection.take(exchange)
            connection.send(exchange)

    def _opening(self, loop: asyncio.AbstractEventLoop) -> Awaitable[tuple[asyncio.BaseTransport, Connection]]:
        at = self.address
        if at.path is not None:
            return loop.create_unix_connection(self._made, at.path)
        return loop.create_connection(
            self._made, at.host, at.port, ssl=at.tls, server_hostname=at.host if at.tls else None
        )

    def _made(self) -> Connection:
        return Connection(self)

    def give_back(self, connection: Connection) -> None:
        """The exchange is over and the connection may carry another one."""
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is closed or about to be."""
        self._all.discard(connection)

    def sweep(self) -> None:
        """Close connections idle for too long; called about once a second."""
        oldest = time.monotonic() - self.idle_seconds
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.popleft().discard()

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._all):
            connection.discard()
        self._idle.clear()
