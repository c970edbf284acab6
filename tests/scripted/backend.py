"""A backend that does exactly what its script says, byte for byte, on a real socket."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from tests.scripted.clock import until


class Request(NamedTuple):
    """What the gateway sent."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    """Names in lower case."""
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key == name), None)


class Visit:
    """One connection from the gateway; a script drives it."""

    def __init__(self, backend: "ScriptedBackend", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.backend = backend
        self.reader = reader
        self.writer = writer
        self.request = Request("", "", [], b"")
        self.served = 0
        """Requests that came over this connection."""
        self.gone = False
        """The gateway closed it."""
        self.over = False
        """The script ended it."""

    async def read_head(self) -> None:
        """The head of the next request; ``ConnectionError`` when there is none."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            self.gone = True
            raise ConnectionError from error
        lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = lines[0].split(" ")
        pairs = [line.partition(":") for line in lines[1:]]
        self.request = Request(method, target, [(name.lower(), value.strip()) for name, _, value in pairs], b"")
        self.served += 1
        self.backend.heads += 1

    async def read_body(self) -> None:
        """The body of the request whose head was read."""
        length = int(self.request.header("content-length") or 0)
        try:
            body = await self.reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self.gone = True
            raise ConnectionError from error
        self.request = self.request._replace(body=body)
        self.backend.requests.append(self.request)

    async def send(self, data: bytes) -> None:
        """Write, and wait until the gateway's socket took it."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """A clean end of the connection."""
        self.over = True
        self.writer.close()

    def reset(self) -> None:
        """An abrupt end: RST instead of FIN."""
        self.over = True
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait until the gateway closes the connection; what it still sends is thrown away."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.gone = True
        self.over = True


Script = Callable[[Visit], Awaitable[None]]


class ScriptedBackend:
    """Plays one script per request, in order; the last one again and again.

    A script starts when a request's body is here; with ``early`` when its head is.
    """

    def __init__(self, *scripts: Script, early: bool = False, greeting: Script | None = None) -> None:
        self.scripts = list(scripts)
        self.early = early
        self.greeting = greeting
        """Played on every new connection instead of reading a request."""
        self.requests: list[Request] = []
        self.heads = 0
        self.visits: list[Visit] = []
        self.port = 0
        self.path: Path | None = None
        self._server: asyncio.Server | None = None
        self._started = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}" if self.path is None else f"unix:{self.path}"

    @contextlib.asynccontextmanager
    async def listening(
        self, tls: ssl.SSLContext | None = None, path: Path | None = None
    ) -> AsyncIterator["ScriptedBackend"]:
        """Serve for as long as the block lasts."""
        limit = 1 << 20
        if path is not None:
            self.path = path
            server = await asyncio.start_unix_server(self._visited, path, limit=limit)
        else:
            server = await asyncio.start_server(self._visited, "127.0.0.1", 0, ssl=tls, limit=limit)
            self.port = server.sockets[0].getsockname()[1]
        self._server = server
        try:
            yield self
        finally:
            self.leave()

    def leave(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        for visit in self.visits:
            visit.writer.transport.abort()

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(self, reader, writer)
        self.visits.append(visit)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            if self.greeting is not None:
                await self.greeting(visit)
            while not visit.over:
                await visit.read_head()
                if not self.early:
                    await visit.read_body()
                await self._next()(visit)
        if not visit.over:
            writer.close()
        visit.gone = visit.gone or reader.at_eof()

    def _next(self) -> Script:
        script = self.scripts[min(self._started, len(self.scripts) - 1)]
        self._started += 1
        return script

    async def asked(self, requests: int = 1) -> None:
        """Wait until so many requests are here."""
        await until(lambda: len(self.requests) >= requests)


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
