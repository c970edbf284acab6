"""A client that sends raw bytes and reads answers strictly; it forgives nothing a proxy might get wrong."""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any


class Malformed(Exception):
    """The gateway answered with something that is not HTTP/1.1."""


@dataclass
class Answer:
    """One answer as far as it was read."""

    status: int
    reason: str
    version: str
    headers: list[tuple[str, str]]
    """Names in lower case."""
    body: bytes = b""
    complete: bool = False
    """Its own framing says that nothing is missing."""
    by_close: bool = False
    """Only the end of the connection ends it."""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    """1xx answers before it."""

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.all(name)), None)

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        """The OpenAI error object, checked for its members."""
        assert self.header("content-type") == "application/json"
        error = self.json()["error"]
        assert set(error) >= {"message", "type", "param", "code"}
        assert error["code"] is None or isinstance(error["code"], str)
        assert isinstance(error, dict)
        return error


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Write."""
        self.writer.write(data)
        await self.writer.drain()

    def leave(self) -> None:
        """Close the connection (FIN)."""
        self.writer.close()

    def reset(self) -> None:
        """Close the connection (RST)."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def closed(self) -> bool:
        """Wait for the gateway to close; True when nothing came before that."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def head(self, method: str = "POST") -> Answer:
        """Status line and headers; 1xx answers before it are noted."""
        interim: list[int] = []
        while True:
            try:
                raw = await self.reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                raise ConnectionError(f"closed after {error.partial!r}") from error
            answer = _head(raw)
            if answer.status >= 200:
                break
            interim.append(answer.status)
        answer.interim = interim
        _check_framing(answer, method)
        return answer

    async def body(self, answer: Answer, method: str = "POST") -> Answer:
        """The rest of an answer, to its end or to the end of the connection."""
        if answer.complete:
            return answer
        try:
            if answer.header("transfer-encoding") == "chunked":
                await self._chunks(answer)
            elif answer.by_close:
                answer.body += await self.reader.read()
                answer.complete = True
            else:
                await self._sized(answer, int(answer.header("content-length") or 0))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if answer.header("transfer-encoding") is None and isinstance(error, asyncio.IncompleteReadError):
                answer.body += error.partial
        return answer

    async def _sized(self, answer: Answer, length: int) -> None:
        answer.body += await self.reader.readexactly(length - len(answer.body))
        answer.complete = True

    async def _chunks(self, answer: Answer) -> None:
        while await self.chunk(answer):
            pass

    async def chunk(self, answer: Answer) -> bool:
        """One chunk more; False after the last one."""
        line = await self.reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size:
            data = await self.reader.readexactly(size + 2)
            if data[-2:] != b"\r\n":
                raise Malformed(f"chunk of {size} bytes ends in {data[-2:]!r}")
            answer.body += data[:-2]
            return True
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            answer.trailers.append(_pair(line))
        answer.complete = True
        return False

    async def until(self, answer: Answer, part: bytes) -> None:
        """Read a chunked answer on until it holds these bytes."""
        while part not in answer.body:
            assert await self.chunk(answer), f"ended without {part!r}"

    async def answer(self, method: str = "POST") -> Answer:
        """A whole answer."""
        return await self.body(await self.head(method), method)

    async def ask(self, request: bytes, method: str = "POST") -> Answer:
        """Send a request, read its answer."""
        await self.send(request)
        return await self.answer(method)


def _pair(line: bytes) -> tuple[str, str]:
    name, colon, value = line.decode("latin-1").partition(":")
    if not colon or name != name.strip():
        raise Malformed(f"header line {line!r}")
    return name.lower(), value.strip()


def _head(raw: bytes) -> Answer:
    lines = raw[:-4].split(b"\r\n")
    version, _, rest = lines[0].decode("latin-1").partition(" ")
    status, _, reason = rest.partition(" ")
    if version != "HTTP/1.1" or not status.isdigit() or b"\n" in raw.replace(b"\r\n", b""):
        raise Malformed(f"head {raw!r}")
    return Answer(int(status), reason, version, [_pair(line) for line in lines[1:]])


def _check_framing(answer: Answer, method: str) -> None:
    lengths, codings = answer.all("content-length"), answer.all("transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise Malformed(f"framed twice: {answer.headers}")
    if method == "HEAD" or answer.status in (204, 304):
        answer.complete = True
    elif not lengths and not codings:
        answer.by_close = True
    elif lengths == ["0"]:
        answer.complete = True


@contextlib.asynccontextmanager
async def connected(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """A connection for as long as the block lasts."""
    name = "localhost" if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name, limit=1 << 26)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def post(
    body: bytes = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}',
    path: str = "/v1/chat/completions",
    headers: str = "content-type: application/json\r\n",
    version: str = "1.1",
) -> bytes:
    """A request as bytes. ``headers`` are whole lines."""
    return (
        f"POST {path} HTTP/{version}\r\nhost: gateway\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body
    )


def get(path: str, method: str = "GET", headers: str = "") -> bytes:
    """A request without a body."""
    return f"{method} {path} HTTP/1.1\r\nhost: gateway\r\n{headers}\r\n".encode()


CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
CHAT_STREAM = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
