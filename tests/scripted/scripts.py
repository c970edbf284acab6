"""The vocabulary of scripts: what a backend says, and how it stops saying it."""

import asyncio
from collections.abc import Sequence

from tests.scripted.backend import Script, Visit

EVENTS = tuple(
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%b"},'
    b'"finish_reason":null}]}\n\n' % word
    for word in (b"one", b" two", b" three")
)
LAST = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = b"".join((*EVENTS, LAST, DONE))
ANSWER = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"one two three"}}]}'
SSE = b"content-type: text/event-stream\r\n"
JSON = b"content-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def head(headers: bytes = JSON, status: bytes = b"200 OK") -> bytes:
    """Status line and headers (whole lines)."""
    return b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n"


def whole(body: bytes = ANSWER, status: bytes = b"200 OK", headers: bytes = JSON) -> bytes:
    """A complete answer of known length."""
    return head(headers + b"content-length: %d\r\n" % len(body), status) + body


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def say(*pieces: bytes) -> Script:
    """Send pieces, each in a write of its own, and keep the connection for the next request."""

    async def script(visit: Visit) -> None:
        for piece in pieces:
            await visit.send(piece)
            await asyncio.sleep(0)

    return script


def stream(pieces: Sequence[bytes] = (*EVENTS, LAST, DONE), headers: bytes = SSE) -> Script:
    """A complete chunked stream."""
    return say(head(headers + CHUNKED), *(chunk(piece) for piece in pieces), LAST_CHUNK)


def answer(body: bytes = ANSWER, status: bytes = b"200 OK", headers: bytes = JSON) -> Script:
    """A complete answer of known length."""
    return say(whole(body, status, headers))


def then_close(*pieces: bytes) -> Script:
    """Say something and close."""

    async def script(visit: Visit) -> None:
        await say(*pieces)(visit)
        visit.close()

    return script


def then_reset(*pieces: bytes) -> Script:
    """Say something and reset. What was said before is given time to arrive: a reset overtakes it otherwise."""

    async def script(visit: Visit) -> None:
        await say(*pieces)(visit)
        await asyncio.sleep(0.02 if pieces else 0)
        visit.reset()

    return script


def then_hold(*pieces: bytes) -> Script:
    """Say something, then nothing more."""

    async def script(visit: Visit) -> None:
        await say(*pieces)(visit)
        await visit.until_gone()

    return script


def trickle(data: bytes, size: int = 1) -> Script:
    """Send so many bytes at a time."""
    return say(*(data[at : at + size] for at in range(0, len(data), size)))
