"""The fault matrix: what a backend can do wrong, and when; what has to come of it.

One ``Cell`` per phase and failure that can meet. ``tests/faults/test_matrix.py`` plays them all; ``page`` makes
docs/faults.md of the same table.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.scripted.backend import Script, Visit
from tests.scripted.scripts import (
    ANSWER,
    CHUNKED,
    DONE,
    EVENTS,
    JSON,
    LAST,
    LAST_CHUNK,
    SSE,
    chunk,
    head,
    say,
    stream,
    then_close,
    then_hold,
    then_reset,
)

CONNECT, SEND, HEAD, FIRST, MIDDLE, END = PHASES = (
    "connect",
    "send",
    "waiting for the head",
    "waiting for the first byte",
    "mid-stream",
    "at the end",
)
FAILURES = (
    "refused",
    "DNS failure",
    "TLS failure",
    "closed",
    "reset",
    "stalled",
    "garbage",
    "truncated",
    "wrong length",
    "slow trickle",
)
CONNECT_SECONDS = 30.0
FIRST_BYTE_SECONDS = 300.0
IDLE_SECONDS = 120.0
Failing = Callable[[bool], Script]
"""From "does it stream" to what the backend does."""


class Cell(NamedTuple):
    """One meeting of phase and failure."""

    phase: str
    failure: str
    play: Failing | None
    """None: nobody listens, or the name does not resolve."""
    fault: str | None
    """Of ``policies.events.FAULTS``; None: nothing is wrong."""
    patience: float | None = None
    """Seconds that have to pass before it counts as a fault."""
    tls: bool = False
    early: bool = False
    """The backend acts when it has the request's head, before its body."""
    greets: bool = False
    """The backend acts as soon as the connection is there."""
    heads: int = 1
    """Request heads the backend got before it failed."""

    @property
    def id(self) -> str:
        """For test names."""
        return f"{self.phase}: {self.failure}"

    @property
    def unseen(self) -> bool:
        """The client has no byte yet, so another backend may take over."""
        return self.phase in (CONNECT, SEND, HEAD, FIRST)


class Said(NamedTuple):
    """A correct answer in the pieces in which a backend writes it."""

    head: bytes
    pieces: tuple[bytes, ...]
    """Framed."""
    end: bytes
    """What completes it."""
    text: bytes
    """The body without framing."""


def said(streaming: bool, chunked: bool = False) -> Said:
    """What the scripted backends answer when nothing is wrong."""
    if streaming:
        pieces = (*EVENTS, LAST, DONE)
        return Said(head(SSE + CHUNKED), tuple(map(chunk, pieces)), LAST_CHUNK, b"".join(pieces))
    if chunked:
        return Said(head(JSON + CHUNKED), (chunk(ANSWER[:30]), chunk(ANSWER[30:])), LAST_CHUNK, ANSWER)
    return Said(head(JSON + b"content-length: %d\r\n" % len(ANSWER)), (ANSWER[:30], ANSWER[30:-1]), ANSWER[-1:], ANSWER)


def up_to(phase: str, streaming: bool, chunked: bool = False) -> tuple[bytes, ...]:
    """What a backend wrote before it fails in a phase."""
    whole = said(streaming, chunked)
    written: dict[str, tuple[bytes, ...]] = {
        FIRST: (whole.head,),
        MIDDLE: (whole.head, whole.pieces[0]),
        END: (whole.head, *whole.pieces),
    }
    return written.get(phase, ())


def broken_record(visit: Visit) -> None:
    """Bytes on the socket below TLS that no TLS stack takes for a record."""
    raw = socket.socket(fileno=os.dup(visit.writer.get_extra_info("socket").fileno()))
    with raw:
        raw.setblocking(True)
        raw.sendall(b"this is no TLS record" * 20)


def _closing(phase: str) -> Failing:
    return lambda streaming: then_close(*up_to(phase, streaming))


def _resetting(phase: str) -> Failing:
    return lambda streaming: then_reset(*up_to(phase, streaming))


def _stalling(phase: str) -> Failing:
    return lambda streaming: _deaf(*up_to(phase, streaming)) if phase == SEND else then_hold(*up_to(phase, streaming))


def _deaf(*pieces: bytes) -> Script:
    """Never reads again."""

    async def script(visit: Visit) -> None:
        await say(*pieces)(visit)
        visit.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a read-write transport
        await asyncio.Event().wait()

    return script


def _garbage(phase: str) -> Failing:
    rubbish = b"zz not a chunk\r\n" if phase in (FIRST, MIDDLE, END) else b"\x16\x03 what is this\r\n\r\n"
    return lambda streaming: then_hold(*up_to(phase, streaming, chunked=True), rubbish)


def _truncated(phase: str) -> Failing:
    def play(streaming: bool) -> Script:
        half = b"HTTP/1.1 200 OK\r\ncontent-ty" if phase in (SEND, HEAD) else b"64\r\n"
        half += b"data: {" if phase in (MIDDLE, END) else b""
        return then_close(*up_to(phase, streaming, chunked=True), half)

    return play


def _wrong_length(phase: str) -> Failing:
    def play(streaming: bool) -> Script:
        kind, text = (SSE, said(True).text) if streaming else (JSON, ANSWER)
        if phase in (SEND, HEAD):
            return then_hold(head(kind + b"content-length: 12\r\ncontent-length: 13\r\n") + text)
        if phase == END:
            return say(head(kind + b"content-length: %d\r\n" % len(text)) + text + b"and more than was announced")
        sent = b"" if phase == FIRST else text[:40]
        return then_close(head(kind + b"content-length: %d\r\n" % (len(text) + 10)), sent)

    return play


def _tls_broken(phase: str) -> Failing:
    def play(streaming: bool) -> Script:
        async def script(visit: Visit) -> None:
            await say(*up_to(phase, streaming))(visit)
            await asyncio.sleep(0.02)  # lets what was said arrive as a read of its own
            broken_record(visit)
            await visit.until_gone()

        return script

    return play


def _trickling(phase: str) -> Failing:
    def play(streaming: bool) -> Script:
        whole = said(streaming)
        parts = {HEAD: 0, FIRST: 1, MIDDLE: 2, END: 1 + len(whole.pieces)}[phase]
        written = (whole.head, *whole.pieces, whole.end)
        slow = b"".join(written[parts:])[:400]
        rest = b"".join(written[parts:])[400:]
        return say(*written[:parts], *(slow[at : at + 1] for at in range(len(slow))), rest)

    return play


def _reading_slowly(streaming: bool) -> Script:
    async def script(visit: Visit) -> None:
        length = int(visit.request.header("content-length") or 0)
        got = 0
        while got < length:
            got += len(await visit.reader.read(16384))
        whole = said(streaming)
        await say(whole.head, *whole.pieces, whole.end)(visit)

    return script


async def _closes(visit: Visit) -> None:
    visit.close()


async def _resets(visit: Visit) -> None:
    visit.reset()


def _greeting(act: Callable[[Visit], Awaitable[None]]) -> Failing:
    return lambda streaming: act


def _cells() -> tuple[Cell, ...]:
    cells = [
        Cell(CONNECT, "refused", None, "connect", heads=0),
        Cell(CONNECT, "DNS failure", None, "connect", heads=0),
        Cell(CONNECT, "TLS failure", lambda streaming: stream(), "connect", tls=True, heads=0),
        Cell(CONNECT, "closed", _greeting(_closes), "connect", greets=True, heads=0),
        Cell(CONNECT, "reset", _greeting(_resets), "connect", greets=True, heads=0),
        Cell(CONNECT, "stalled", _greeting(_deaf()), "connect-timeout", CONNECT_SECONDS, greets=True, heads=0),
        Cell(CONNECT, "garbage", _greeting(then_hold(b"no TLS at all")), "connect", greets=True, heads=0),
        Cell(CONNECT, "truncated", _greeting(then_close(b"\x16\x03\x03\x00")), "connect", greets=True, heads=0),
        Cell(SEND, "slow trickle", _reading_slowly, None, early=True),
    ]
    for phase in (SEND, HEAD, FIRST, MIDDLE, END):
        early = phase == SEND
        cut = "closed" if phase in (SEND, HEAD) else "truncated"
        malformed = "garbage" if phase in (SEND, HEAD) else "truncated"
        slow, seconds = (
            ("head-timeout", FIRST_BYTE_SECONDS) if phase in (SEND, HEAD, FIRST) else ("idle-timeout", IDLE_SECONDS)
        )
        cells += [
            Cell(phase, "TLS failure", _tls_broken(phase), cut, tls=True, early=early),
            Cell(phase, "closed", _closing(phase), cut, early=early),
            Cell(phase, "reset", _resetting(phase), cut, early=early),
            Cell(phase, "stalled", _stalling(phase), slow, seconds, early=early),
            Cell(phase, "garbage", _garbage(phase), malformed, early=early),
            Cell(phase, "truncated", _truncated(phase), cut, early=early),
            Cell(phase, "wrong length", _wrong_length(phase), None if phase == END else malformed, early=early),
        ]
        if phase != SEND:
            cells.append(Cell(phase, "slow trickle", _trickling(phase), None))
    return tuple(cells)


CELLS = _cells()
