"""The same relay as a plain ASGI application: the portable reference.

Any ASGI server can run it; the fast way in ``proxy.wire.server`` must answer exactly alike, and the
relay's tests run against both. Slower: a task, two queues and a scope per request.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from proxy.errors import GatewayError
from proxy.surfaces.base import Surface
from proxy.wire.door import Door, too_large
from proxy.wire.headers import Headers, origin_form
from proxy.wire.inbound import Head, Inbound, Passport, Served, answer_error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HIGH_WATER_BYTES = 65536
"""Unsent answer bytes above which the backend is paused, as asyncio's own transports do."""


class TruncatedAnswer(Exception):  # raised towards the server, which then cuts the connection
    """The answer could not be completed; the server must not end it cleanly."""


class AsgiInbound(Inbound):
    """A request that came as an ASGI scope."""

    def __init__(self, scope: Scope, surface: Surface) -> None:
        self.surface = surface
        headers, http_10 = list(scope["headers"]), scope.get("http_version") == "1.0"
        self.head = Head(scope["method"].encode(), scope["raw_path"], scope.get("query_string", b""), headers, http_10)
        self.id = ""
        self.peer: str = scope["client"][0] if scope.get("client") else ""
        self.scheme: str = scope.get("scheme", "http")
        self.passport: Passport | None = None
        self.served: Served | None = None
        self.started = False
        self.parts: list[bytes] = []
        self.aborted = False
        self.gone = False
        """The client left, so that nobody has to be told."""
        self._messages: list[Message] = []
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._ended = False
        self._slow = False

    def body(self) -> bytes:
        """See ``Inbound``."""
        if len(self.parts) != 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]

    def start(self, status: int, reason: bytes | None, lines: list[bytes], length: int | None) -> None:
        """See ``Inbound``. ASGI has no reason phrase."""
        self.started = True
        self.parts = []
        headers = [_pair(line) for line in b"".join(lines).split(b"\r\n")[:-1]]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        self._messages.append({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, data: bytes) -> None:
        """See ``Inbound``."""
        if not data or self._ended:
            return
        self._messages.append({"type": "http.response.body", "body": data, "more_body": True})
        self._waiting_bytes += len(data)
        self._wake.set()
        if self._waiting_bytes > HIGH_WATER_BYTES and not self._slow and self.served is not None:
            self._slow = True
            self.served.client_slow()

    def write_chunks(self, data: bytes, payload: bytes) -> None:
        """See ``Inbound``. ASGI has no framing."""
        self.write(payload)

    def finish(self, trailers: Headers) -> None:
        """See ``Inbound``. Trailers are an ASGI extension few servers have; they are dropped."""
        self._messages.append({"type": "http.response.body", "body": b"", "more_body": False})
        self._end()

    def answer(self, status: int, reason: bytes | None, lines: list[bytes], data: bytes) -> None:
        """See ``Inbound``."""
        self.start(status, reason, lines, len(data))
        self.write(data)
        self.finish([])

    def abort(self) -> None:
        """See ``Inbound``."""
        self.aborted = True
        self._end()

    def leave(self) -> None:
        """The client left."""
        self.gone = True
        self._end()

    def _end(self) -> None:
        self._ended = True
        self.served = None
        self._wake.set()

    async def pump(self, send: Send) -> None:
        """Send what the relay writes, until it is over. Raises TruncatedAnswer after ``abort``."""
        while True:
            messages, self._messages, self._waiting_bytes = self._messages, [], 0
            for message in messages:
                await send(message)
            if self._messages:
                continue
            if self._ended:
                break
            if self._slow and self.served is not None:
                self._slow = False
                self.served.client_ready()
            self._wake.clear()
            await self._wake.wait()
        if self.aborted and not self.gone:
            raise TruncatedAnswer


def _pair(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


class Portable:
    """ASGI application: the surfaces through the relay, everything else to ``control``."""

    def __init__(self, door: Door, control: App) -> None:
        self.door = door
        self.control = control

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        surface = None
        if scope["type"] == "http":
            scope["raw_path"] = origin_form(scope.get("raw_path") or scope["path"].encode())
            surface = self.door.surface_at(scope["method"].encode(), scope["raw_path"])
        if surface is None:
            await self.control(scope, receive, send)
            return
        inbound = AsgiInbound(scope, surface)
        if await self._take_in(inbound, receive):
            self.door.enter(inbound, surface)
        await self._answer(inbound, receive, send)

    async def _take_in(self, inbound: AsgiInbound, receive: Receive) -> bool:
        """Read the body; False when the request was refused or the client left."""
        error = self.door.refuse_early(inbound, _length(inbound.head.headers))
        size = 0
        while error is None:
            message = await receive()
            if message["type"] != "http.request":
                inbound.leave()
                return False
            size += len(message.get("body", b""))
            if size > self.door.max_body_bytes:
                error = too_large(self.door.max_body_bytes)
            inbound.parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        if error is not None:
            self._refuse(inbound, error)
            return False
        return True

    def _refuse(self, inbound: AsgiInbound, error: GatewayError) -> None:
        """The rest of the body stays unread, so the connection cannot go on."""
        self.door.refused(inbound, error)
        lines = [*self.door.error_lines(inbound), b"connection: close\r\n"]
        answer_error(inbound, error, inbound.surface.dialect, lines)

    async def _answer(self, inbound: AsgiInbound, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(_watch(inbound, receive))
        try:
            await inbound.pump(send)
        finally:
            watcher.cancel()
            if inbound.served is not None:
                inbound.served.client_left()


async def _watch(inbound: AsgiInbound, receive: Receive) -> None:
    """Tell the relay when the client leaves."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            served = inbound.served
            inbound.leave()
            if served is not None:
                served.client_left()
            return


def _length(headers: Headers) -> int | None:
    value = next((value for name, value in headers if name == b"content-length"), b"")
    return int(value) if value.isdigit() else None
