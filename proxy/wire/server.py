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
from proxy.wire.door import Door
from proxy.wire.fast import FastInbound
from proxy.wire.headers import status_line

PIPELINED_BYTES = 1024 * 1024
"""Body bytes of requests waiting behind another one on the same connection before reading pauses."""
log = logging.getLogger("draftlane.wire")


class GatewayProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a side door. ``door`` is set on a subclass by ``bound_to``."""

    door: Door
    cycle: Any  # a FastInbound, or uvicorn's RequestResponseCycle

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.door_closed = False
        """No further request on this connection (shutdown, or broken input)."""
        self._broken = False
        self._refusal: GatewayError | None = None
        self._head_bytes = 0
        self._open: list[FastInbound] = []

    # -- asyncio.Protocol
    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._broken:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._without_upgrade(data[cast(int, upgrade.args[0]) :])
        except httptools.HttpParserInvalidMethodError:
            self._turn_away(GatewayError("not_implemented", "The request's method is not one this gateway knows."))
        except httptools.HttpParserError as error:
            self._turn_away(self._refusal or self._why(error))

    def _why(self, error: Exception) -> GatewayError:
        if isinstance(error, httptools.HttpParserCallbackError):
            log.error("request handling failed", exc_info=error.__context__ or error)
            return GatewayError("internal", "The gateway failed to handle this request.")
        return GatewayError("bad_request", f"The request is not valid HTTP/1.1: {error}.")

    def connection_lost(self, exc: Exception | None) -> None:
        for inbound in self._open:
            inbound.disconnected = True
            if inbound.served is not None:
                inbound.served.client_left()
        self._open = []
        if isinstance(self.cycle, FastInbound):
            self.cycle = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._open and self._open[0].served is not None:
            self._open[0].served.client_slow()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._open and self._open[0].served is not None:
            self._open[0].served.client_ready()

    def shutdown(self) -> None:
        """Finish what runs, take nothing new."""
        self.door_closed = True
        for inbound in self._open:
            inbound.keep_alive = False
        super().shutdown()

    def cut(self) -> None:
        """The grace period is over: end what still runs, visibly."""
        for inbound in list(self._open):
            served = inbound.served
            inbound.abort()
            if served is not None:
                served.client_left()
        if self.transport is not None:
            self.transport.close()

    # -- httptools callbacks
    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.door.max_header_bytes:
            self._give_up("uri_too_long", "The request's URL is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self.door.max_header_bytes:
            self._give_up("headers_too_large", f"The request's headers exceed {self.door.max_header_bytes} bytes.")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # HttpParserUpgrade follows
        length = self._checked_framing()
        path, _, query = self.url.partition(b"?")
        method = self.parser.get_method()
        surface = self.door.surface_at(method, path) if path[:1] == b"/" else None
        if surface is None:
            self._to_control_plane()
            return
        self._take_in(FastInbound(self, surface, method, path, query), length)

    def _take_in(self, inbound: FastInbound, length: int | None) -> None:
        before = self.cycle
        self.cycle = inbound
        self._open.append(inbound)
        if before is None or before.response_complete:
            inbound.current = True
        else:
            self.pipeline.appendleft((cast(RequestResponseCycle, inbound), self.app))
            return
        refusal = self.door.refuse_early(inbound, length)
        if refusal is not None:
            inbound.refuse(refusal)
            if self.expect_100_continue:
                self.transport.close()
        elif self.expect_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if not isinstance(cycle, FastInbound):
            super().on_body(body)
            return
        cycle.take(body)
        if not cycle.current and sum(i.waiting_bytes for i in self._open) > PIPELINED_BYTES:
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
            super()._start_asgi_task(cycle, app)
            return
        refusal = self.door.refuse_early(cycle, None)
        cycle.current = True
        if refusal is not None:
            cycle.refuse(refusal)
        else:
            cycle.begin()

    def send_400_response(self, msg: str) -> None:
        self._turn_away(GatewayError("bad_request", msg))

    # -- own
    def leave(self, inbound: FastInbound) -> None:
        """An answer is complete."""
        if inbound in self._open:
            self._open.remove(inbound)

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
                self._give_up("not_implemented", "Transfer-Encoding other than chunked is not supported.")
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._give_up("version", "This gateway speaks HTTP/1.1.")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            self._give_up("bad_request", "The request needs exactly one Host header.")
        return length

    def _give_up(self, kind: str, message: str) -> None:
        """Stop the parser in the middle of a head; data_received answers."""
        self._refusal = GatewayError(kind, message)
        raise ValueError(message)

    def _turn_away(self, error: GatewayError) -> None:
        """Input that cannot be understood: answer once, read no more."""
        self._broken = self.door_closed = True
        cycle = self.cycle
        if isinstance(cycle, FastInbound) and cycle.current and not cycle.started and cycle.served is None:
            cycle.refuse(error)
            self.transport.close()
        elif cycle is None or cycle.response_complete:
            self._refuse_unread(error)
        else:
            cycle.keep_alive = False

    def _refuse_unread(self, error: GatewayError) -> None:
        """An answer to input that never became a request."""
        data = errors.body(error)
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status_line(error.status), len(data)) + data)
        self.transport.close()

    def _without_upgrade(self, rest: bytes) -> None:
        """RFC 9110 §7.8: an upgrade is an offer, and this server declines it. WebSocket clients are told so;
        for the others (Java's HttpClient offers h2c on every request) the request is served as HTTP/1.1."""
        headers = self.headers
        if any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers):
            self._turn_away(GatewayError("no_upgrade", "WebSocket is not supported here; use HTTP requests."))
            return
        dropped = (b"upgrade", b"http2-settings", b"connection")
        lines = [b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)]
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
        if self.door_closed:
            self.cycle.keep_alive = False


def bound_to(door: Door) -> type[GatewayProtocol]:
    """The protocol class for one gateway (uvicorn wants a class)."""
    return type("BoundGatewayProtocol", (GatewayProtocol,), {"door": door})
