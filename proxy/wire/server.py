"""The fast way in: uvicorn's protocol, with the surfaces' requests taken off before ASGI.

Requests for a surface never become an ASGI scope, a task or a queue: the parser's callbacks fill a
``FastInbound`` and the relay writes to the socket. Everything else (admin, models, health, CORS
preflight, 404) goes on to the control plane as uvicorn would have it. What is overridden is little and
was read in uvicorn 0.54; the dependency is pinned for that reason.
"""

import asyncio
import logging
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from proxy import errors
from proxy.errors import GatewayError
from proxy.wire.arrivals import Arrivals
from proxy.wire.door import Door
from proxy.wire.fast import FastInbound
from proxy.wire.headers import origin_form, status_line
from proxy.wire.inbound import Head
from proxy.wire.line import NEVER, Line
from proxy.wire.repeats import Familiar, Repeats

PIPELINED_BYTES = 1024 * 1024
"""Body bytes of requests waiting behind another one on the same connection before reading pauses."""
PIPELINED = 64
"""Requests waiting behind another one on the same connection before reading pauses."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
log = logging.getLogger("draftlane.wire")


class GatewayProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a side door. What all connections of a server share is set on a subclass by ``bound_to``."""

    door: Door
    familiar: Familiar
    arrivals: Arrivals

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.line = Line(self, self.door, _loop or asyncio.get_event_loop())
        super().__init__(config, server_state, app_state, self.line.loop)
        self.pipeline = self.line.pipeline
        self.repeats = Repeats(self.line, self.familiar)
        # Here, because uvloop looks it up when it makes the transport, before connection_made.
        self.data_received = self.repeats.hear  # type: ignore[method-assign]  # nothing of this class is run for most
        self._refusal: GatewayError | None = None
        self._head_bytes = 0
        self._head_bytes_read: int | None = None
        """Of an incomplete head, beyond the read it began in."""
        self._head_since = 0.0
        self._length: int | None = None
        """Content-Length of the request whose head was read last."""
        self._control: RequestResponseCycle | None = None
        """The last request of the control plane that was started; ``cycle`` may be one that waits behind it."""

    @property
    def cycle(self) -> Any:
        """See ``Line``."""
        return self.line.cycle

    @cycle.setter
    def cycle(self, newest: Any) -> None:
        self.line.cycle = newest

    # -- asyncio.Protocol
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        line = self.line
        line.transport, line.client, line.scheme = transport, self.client, self.scheme or "http"
        if self.arrivals.over:
            self.shutdown()
        else:
            self.arrivals.came()

    # -- told by its repeats
    def parse(self, data: bytes) -> None:
        """See ``Owner``."""
        before = self.cycle
        fresh = self.repeats.may_begin()
        self._parse(data)
        inbound = self.cycle
        if not fresh or inbound is before or self.line.in_head or self.line.broken:
            return
        if type(inbound) is FastInbound and inbound.keep_alive:
            self.repeats.remember(inbound, data, self._length)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._without_upgrade(data[cast(int, upgrade.args[0]) :])
        except httptools.HttpParserInvalidMethodError:
            self._turn_away(GatewayError("not_implemented", "The request's method is not one this gateway knows."))
        except httptools.HttpParserError as error:
            self._turn_away(self._refusal or self._why(error))

    def wait_for_head(self, size: int) -> None:
        """Half a head: httptools gathers a header without bounds, and a client may take for ever to send one."""
        if self._head_bytes_read is None:
            self._head_bytes_read, self._head_since = 0, self.loop.time()
        else:
            self._head_bytes_read += size
        self.line.waiting_since = self._head_since
        if self._head_bytes_read > self.door.max_header_bytes:
            self._turn_away(self._too_large())

    def _too_large(self) -> GatewayError:
        limit = self.door.max_header_bytes
        return GatewayError("headers_too_large", f"The request's headers exceed {limit} bytes.")

    def lose_patience(self, oldest: float) -> None:
        """Turn the client away if it has kept us waiting since before ``oldest`` (the loop's time)."""
        if self.line.waiting_since > oldest or self.transport.is_closing():
            return
        if self.line.in_head or type(self.cycle) is FastInbound:
            self._turn_away(GatewayError("timeout", "The request did not arrive in time."))
        else:  # nothing was ever said
            self.transport.close()

    def broke(self, error: Exception) -> None:
        """See ``Owner``."""
        self._turn_away(self._fault(error))

    def _why(self, error: Exception) -> GatewayError:
        if isinstance(error, httptools.HttpParserCallbackError):
            return self._fault(error.__context__ or error)
        return GatewayError("bad_request", f"The request is not valid HTTP/1.1: {error}.")

    def _fault(self, error: BaseException) -> GatewayError:
        log.error("request handling failed", exc_info=error)
        return GatewayError("internal", "The gateway failed to handle this request.")

    def connection_lost(self, exc: Exception | None) -> None:
        for inbound in self.line.under_way:
            inbound.disconnected = True
            if inbound.served is not None:
                inbound.served.client_left()
        self.line.under_way = []
        if isinstance(self.cycle, FastInbound):
            self.cycle = None
        if self._control is not None:
            self._control.disconnected = True
            self._control.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.line.under_way and self.line.under_way[0].served is not None:
            self.line.under_way[0].served.client_slow()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.line.under_way and self.line.under_way[0].served is not None:
            self.line.under_way[0].served.client_ready()

    def shutdown(self) -> None:
        """Finish what runs, take nothing new."""
        self.line.door_closed = True
        for inbound in self.line.under_way:
            inbound.keep_alive = False
        super().shutdown()

    def cut(self) -> None:
        """The grace period is over: end what still runs, visibly."""
        for inbound in list(self.line.under_way):
            if inbound.served is not None:
                inbound.served.stopped()
            else:
                inbound.abort()
        if self.transport is not None:
            self.transport.close()

    # -- httptools callbacks
    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_bytes = 0
        self._head_bytes_read = None
        self.line.in_head = True

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.door.max_header_bytes:
            self._give_up(GatewayError("uri_too_long", "The request's URL is too long."))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self.door.max_header_bytes:
            self._give_up(self._too_large())
        if not self.line.in_head:
            return  # trailers must not become headers: nobody checked them (RFC 9110 §6.5.1)
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.line.in_head = False
        if self.parser.should_upgrade():
            return  # HttpParserUpgrade follows
        length = self._length = self._checked_framing()
        if self.url[:1] != b"/":
            self.url = origin_form(self.url)
        path, _, query = self.url.partition(b"?")
        method = self.parser.get_method()
        surface = self.door.surface_at(method, path) if path[:1] == b"/" else None
        if surface is None:
            self._to_control_plane()
            return
        head = Head(method, path, query, self.headers, self.parser.get_http_version() == "1.0")
        keep_alive = not head.http_10 and self.parser.should_keep_alive() and not self.line.door_closed
        self._take_in(FastInbound(self.line, surface, head, keep_alive), length)

    def _take_in(self, inbound: FastInbound, length: int | None) -> None:
        inbound.expects_continue = self.expect_100_continue
        before = self.cycle
        self.cycle = inbound
        self.line.under_way.append(inbound)
        if before is not None and not before.response_complete:
            self.pipeline.appendleft((cast(RequestResponseCycle, inbound), self.app))
            if self._crowded():
                self.flow.pause_reading()
            return
        if inbound.admit(length):
            if inbound.expects_continue:
                self.transport.write(CONTINUE)
        elif inbound.expects_continue:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if not isinstance(cycle, FastInbound):
            super().on_body(body)
            return
        cycle.take(body)
        if not cycle.current and self._crowded():
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        cycle = self.cycle
        if isinstance(cycle, FastInbound):
            cycle.complete()
        elif cycle is not None and not self.parser.should_upgrade():
            super().on_message_complete()

    # -- what uvicorn calls
    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if not isinstance(cycle, FastInbound):
            self._control = cycle
            super()._start_asgi_task(cycle, app)
            return
        if cycle.admit(None):
            if cycle.expects_continue and cycle is self.cycle:
                self.transport.write(CONTINUE)
            cycle.begin()

    def send_400_response(self, msg: str) -> None:
        self._turn_away(GatewayError("bad_request", msg))

    # -- own
    def _checked_framing(self) -> int | None:
        """Content-Length, after what llhttp leaves unchecked: host, version, transfer codings."""
        length: int | None = None
        hosts = 0
        for name, value in self.headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                self._give_up(GatewayError("not_implemented", "Transfer-Encoding other than chunked is not supported."))
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._give_up(GatewayError("version", "This gateway speaks HTTP/1.1."))
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            self._give_up(GatewayError("bad_request", "The request needs exactly one Host header."))
        return length

    def _give_up(self, error: GatewayError) -> None:
        """Stop the parser in the middle of a head; data_received answers."""
        self._refusal = error
        raise error

    def _turn_away(self, error: GatewayError) -> None:
        """Input that cannot be understood: answer once, read no more."""
        self.line.broken = self.line.door_closed = True
        self.line.waiting_since = NEVER
        cycle = self.cycle
        if isinstance(cycle, FastInbound) and cycle.current and not cycle.started and cycle.served is None:
            cycle.refuse(error)
            self.transport.close()
        elif cycle is None or cycle.response_complete:
            self._refuse_unread(error)
        else:
            self.line.last_word = error
            if isinstance(cycle, FastInbound) and not cycle.received and not cycle.current:
                self._drop(cycle)

    def _drop(self, inbound: FastInbound) -> None:
        """Its body will never be complete: the newest of the pipeline is not to be worked on."""
        self.pipeline.popleft()
        self.line.under_way.remove(inbound)
        inbound.response_complete = True

    def on_response_complete(self) -> None:
        """As uvicorn's, but the timer of an idle connection is not set anew for every request, and nobody counts them."""
        if not self.transport.is_closing():
            if self.flow.read_paused:
                self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self.line.idle_since = self.loop.time()
                if self.timeout_keep_alive_task is None:
                    self.timeout_keep_alive_handler()
        if self.pipeline and self._crowded():
            self.flow.pause_reading()
        elif self.line.last_word is not None and not self.pipeline and not self.line.under_way:
            self._refuse_unread(self.line.last_word)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been idle for long enough, or look again when that could be."""
        self.timeout_keep_alive_task = None
        if self._at_work():
            return  # the end of the answer comes back here
        left = self.line.idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif not self.transport.is_closing():
            self.transport.close()

    def _at_work(self) -> bool:
        """A request is under way, waits, or has begun to arrive."""
        unanswered = any(one is not None and not one.response_complete for one in (self.cycle, self._control))
        return unanswered or self.line.in_head or bool(self.line.under_way)

    def _crowded(self) -> bool:
        """Too much waits behind the request under way."""
        if not self.pipeline:
            return False
        return len(self.pipeline) > PIPELINED or sum(i.waiting_bytes for i in self.line.under_way) > PIPELINED_BYTES

    def _refuse_unread(self, error: GatewayError) -> None:
        """An answer to input that never became a request."""
        if self.transport.is_closing():
            return
        data = errors.body(error)
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status_line(error.status), len(data)) + data)
        self.transport.close()

    def _without_upgrade(self, rest: bytes) -> None:
        """RFC 9110 §7.8: an upgrade is an offer, and this server declines it. WebSocket clients are told so;
        for the others (Java's HttpClient offers h2c on every request) the request is served as HTTP/1.1."""
        headers, method = self.headers, self.parser.get_method()
        if method == b"CONNECT":
            self._turn_away(GatewayError("not_implemented", "This is no forward proxy: CONNECT is not supported."))
            return
        if any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers):
            self._turn_away(GatewayError("no_upgrade", "WebSocket is not supported here; use HTTP requests."))
            return
        dropped = (b"upgrade", b"http2-settings", b"connection")
        lines = [b"%b %b HTTP/1.1\r\n" % (method, self.url)]
        lines += [b"%b: %b\r\n" % header for header in headers if header[0] not in dropped]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join([*lines, b"\r\n", rest]))

    def _to_control_plane(self) -> None:
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers = headers
        self.scope["headers"] = headers
        super().on_headers_complete()
        if not self._crowded():  # uvicorn pauses for every pipelined request, and would not see the client leave
            self.flow.resume_reading()
        if self.line.door_closed:
            self.cycle.keep_alive = False


def bound_to(door: Door, arrivals: Arrivals) -> type[GatewayProtocol]:
    """The protocol class for one gateway (uvicorn wants a class)."""
    shared = {"door": door, "familiar": Familiar(), "arrivals": arrivals}
    return type("BoundGatewayProtocol", (GatewayProtocol,), shared)
