"""Sends a simulated answer, and notices in every phase when the client leaves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from starlette.types import Receive, Send

_SIMULATED = (b"x-simulated", b"1")


async def send_json(send: Send, body: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    """A JSON answer."""
    await send_bytes(send, msgspec.json.encode(body), b"application/json", status, headers)


async def send_bytes(
    send: Send, body: bytes, content_type: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """An answer known as a whole."""
    own = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), _SIMULATED, *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})


async def send_events(send: Send, events: AsyncIterator[bytes], headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """A stream: head at once, as engines do, then each event as it comes."""
    own = [(b"content-type", b"text/event-stream; charset=utf-8"), _SIMULATED, *headers]
    await send({"type": "http.response.start", "status": 200, "headers": own})
    async for piece in events:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def read_body(receive: Receive) -> bytes:
    """The whole request body; what came before the client left when it does."""
    body = bytearray()
    while True:
        got = await receive()
        body += got.get("body", b"")
        if got["type"] == "http.disconnect" or not got.get("more_body"):
            return bytes(body)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, but cancel it as soon as the client is gone. Call it when the body has been read."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
