"""Throws bytes at the request path and the meters: ``python -m tests.fuzz.run --seconds N``.

Not coverage-guided: requests are grown from a grammar of legal pieces and then damaged, because random bytes never get
past a request line. What must hold for every input: the gateway answers with HTTP or closes, in bounded time; it logs
no exception; nothing stays counted; and it still serves the next good request. Meters must never raise, whatever they
are fed, and must not depend on how it is cut.
"""

import argparse
import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import uvloop

from proxy.meter import meter_for
from proxy.surfaces import SURFACES
from tests.scripted.backend import ScriptedBackend
from tests.scripted.client import CHAT, CHAT_STREAM, Client, Malformed, connected, post
from tests.scripted.rig import Rig, config_for, running
from tests.scripted.scripts import DONE, EVENTS, LAST, answer

PATIENCE_SECONDS = 20.0
"""For one input; only a hang comes near it."""
METHODS = (b"POST", b"GET", b"HEAD", b"OPTIONS", b"PUT", b"CONNECT", b"post", b"M-SEARCH", b"PRI")
TARGETS = (
    b"/v1/chat/completions",
    b"/v1/completions?x=%00",
    b"/v1/models",
    b"/health",
    b"/admin/state",
    b"//v1//chat",
    b"http://g/v1/chat/completions",
    b"*",
    b"g:80",
    b"/v1/../admin",
    b"/%2e%2e/",
    b"/v1/audio/transcriptions",
    b"/v1/messages",
)
HEADERS = (
    b"host: g",
    b"content-type: application/json",
    b"content-length: %d" % len(CHAT),
    b"content-length: 0",
    b"content-length: 7",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked",
    b"expect: 100-continue",
    b"connection: close",
    b"connection: keep-alive, x-a",
    b"connection: upgrade",
    b"upgrade: websocket",
    b"upgrade: h2c",
    b"content-encoding: gzip",
    b"content-encoding: deflate",
    b"x-request-id: \xff",
    b"x-draftlane-lane: plain",
    b"x-draftlane-expected-output-tokens: 99999999999999999999",
    b"accept-encoding: gzip",
    b"x-a: 1\r\n folded",
    b"x-a : 1",
    b"x-long: " + b"y" * 3000,
)
BODIES = (
    CHAT,
    CHAT_STREAM,
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT),
    b"5\r\nhello\r\n0\r\nx-t: 1\r\n\r\n",
    b"{}",
    b"[" * 2000,
    b"\x1f\x8b\x08\x00",
    b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":7},null]}],"n":1e999,"stream":1}',
    b'{"model":"m","prompt":[[1,2],["a"]],"max_tokens":-1,"stop":{},"logit_bias":[]}',
    b"--b\r\ncontent-disposition: form-data; name=model\r\n\r\nm\r\n--b--\r\n",
    b"",
)
STREAM_PIECES = (
    *EVENTS,
    LAST,
    DONE,
    b": ping\n\n",
    b"\r\n",
    b"\r",
    b"data: {}\r\n\r\n",
    b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{"output_tokens":"x"}}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3},"delta":null}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
    b'data: {"choices":[{"delta":{"content":null,"tool_calls":[7]},"index":"a"}],"usage":[]}\n\n',
    b"data: " + b"9" * 400 + b"\n\n",
    b'data: {"choices":[{"text":"\\ud800"}]}\n\n',
    b"\xef\xbb\xbf",
)


class Tally(NamedTuple):
    """What a run did."""

    requests: int
    answers: int
    meters: int


def damaged(draw: random.Random, data: bytes) -> bytes:
    """Some bytes changed, dropped, doubled or cut off."""
    out = bytearray(data)
    for _ in range(draw.choice((0, 0, 1, 1, 3, 10))):
        if not out:
            break
        at = draw.randrange(len(out))
        act = draw.randrange(4)
        if act == 0:
            out[at] = draw.randrange(256)
        elif act == 1:
            del out[at : at + draw.randrange(1, 9)]
        elif act == 2:
            out[at:at] = out[at : at + draw.randrange(1, 40)]
        else:
            out[at:at] = draw.choice((b"\r\n", b"\n", b"\r", b"\x00", b" ", b":", b"\xff", b"0\r\n\r\n"))
    return bytes(out)


def request(draw: random.Random) -> bytes:
    """One request, more or less legal."""
    method = b"POST" if draw.random() < 0.7 else draw.choice(METHODS)
    target = TARGETS[0] if draw.random() < 0.6 else draw.choice(TARGETS)
    headers = [b"host: g", *draw.choices(HEADERS, k=draw.randrange(5))]
    body = draw.choice(BODIES)
    if draw.random() < 0.5:
        headers.append(b"content-length: %d" % len(body))
    version = draw.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b""))
    lines = [b" ".join((method, target, version)), *headers]
    return damaged(draw, b"\r\n".join(lines) + b"\r\n\r\n" + body)


def pieces(draw: random.Random, data: bytes) -> Iterator[bytes]:
    """The same bytes in up to four pieces."""
    borders = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(4)))
    for start, end in zip((0, *borders), (*borders, len(data)), strict=True):
        if start < end:
            yield data[start:end]


async def exchange(port: int, draw: random.Random) -> int:
    """One connection with a few requests; the answers that came. Raises Malformed for what is no HTTP."""
    answers = 0
    async with connected(port) as client:
        try:
            for piece in pieces(draw, b"".join(request(draw) for _ in range(draw.choice((1, 1, 1, 3))))):
                await client.send(piece)
                if draw.random() < 0.3:
                    await asyncio.sleep(0)
            if draw.random() < 0.7:
                await asyncio.sleep(0.004)  # time for an answer: to the gateway, an end of input is a client that left
            if not client.writer.transport.is_closing():
                client.writer.write_eof()
            answers = await _read(client)
        except OSError:
            pass
    return answers


async def _read(client: Client) -> int:
    data = await client.reader.read()
    if data and not data.startswith(b"HTTP/1.1 "):
        raise Malformed(f"answered {data[:200]!r}")
    return data.count(b"HTTP/1.1 ")


def meter(draw: random.Random) -> None:
    """One stream through one meter, in two cuts."""
    name, reader = draw.choice([(one.name, one.reader) for one in SURFACES if one.reader is not None])
    text = damaged(draw, b"".join(draw.choices(STREAM_PIECES, k=draw.randrange(1, 8))))
    kind = draw.choice(("text/event-stream", "text/event-stream", "application/json", "text/plain"))
    strip = draw.random() < 0.3
    results = []
    for cut in (list(pieces(draw, text)), [text]):
        one = meter_for(reader(), kind, "", strip)
        passed = b"".join([*(one.feed(piece, 1.0) for piece in cut), one.end(2.0)])
        results.append((passed, one.facts()._replace()))
    if results[0][0] != results[1][0]:
        raise AssertionError(f"{name}: cut changes what passes: {text!r}")
    if not strip and results[0][0] != text:
        raise AssertionError(f"{name}: bytes changed: {text!r}")


class Complaints(logging.Handler):
    """Exceptions that were logged instead of raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


async def attack(seed: int, go_on: Callable[[int], bool], form: str = "fast") -> Tally:
    """Until ``go_on(requests so far)`` is false. Raises what it found, with the seed that shows it again."""
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    requests = answers = 0
    try:
        async with (
            ScriptedBackend(answer()).listening() as backend,
            running(config_for({"plain": backend.url}), form, guard_seconds=None) as rig,
        ):
            while go_on(requests):
                answers += await _one(rig, random.Random(f"{seed}-{requests}"))
                requests += 1
                if complaints.heard:
                    raise AssertionError(complaints.heard)
                if requests % 50 == 0:
                    await _still_serves(rig)
                    _forget(rig, backend)
            await _still_serves(rig)
    except Exception as error:
        raise RuntimeError(f"seed {seed}, input {requests}") from error
    finally:
        logging.getLogger().removeHandler(complaints)
    return Tally(requests, answers, requests)


async def _one(rig: Rig, draw: random.Random) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await exchange(rig.port, draw)
    meter(draw)
    return answers


def _forget(rig: Rig, backend: ScriptedBackend) -> None:
    """What the rig would gather over hours."""
    backend.requests.clear()
    backend.visits[:-20] = []
    rig.events.clear()
    rig.site.outcomes.clear()


async def _still_serves(rig: Rig) -> None:
    async with connected(rig.port) as client:
        assert (await client.ask(post(CHAT))).status == 200
    await rig.at_rest()


def main() -> int:
    """The command; 1 when something was found."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = options.parse_args()
    until = time.monotonic() + given.seconds
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tally = runner.run(attack(given.seed, lambda _: time.monotonic() < until))
    sys.stdout.write(f"seed {given.seed}: {tally.requests} connections, {tally.answers} answers, nothing found\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
