"""Clients that read or write slowly: bounded buffers, and an end to patience."""

import asyncio
import resource

import pytest

from proxy.wire.server import GatewayProtocol
from tests.scripted.backend import Script, Visit
from tests.scripted.client import CHAT, CHAT_STREAM, connected, post
from tests.scripted.clock import until
from tests.scripted.rig import Rig, scene
from tests.scripted.scripts import ANSWER, CHUNKED, LAST_CHUNK, SSE, answer, chunk, head

PIECE = b"data: " + b"x" * 65_000 + b"\n\n"
PIECES = 600
"""39 MB, many times what sockets and buffers hold."""


class Flood:
    """A backend that streams without end, and counts what the gateway took."""

    def __init__(self) -> None:
        self.sent = 0

    async def __call__(self, visit: Visit) -> None:
        await visit.send(head(SSE + CHUNKED))
        for _ in range(PIECES):
            await visit.send(chunk(PIECE))
            self.sent += 1
        await visit.send(LAST_CHUNK)


def answer_after(ready: asyncio.Event) -> Script:
    """A backend that answers when it is told to."""

    async def play(visit: Visit) -> None:
        await ready.wait()
        await answer()(visit)

    return play


async def test_a_client_that_reads_nothing_holds_the_backend_up(form: str) -> None:
    flood = Flood()
    script: Script = flood
    async with scene(form, script) as (rig, _, client):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a read-write transport
        await client.send(post(CHAT_STREAM))
        await until(lambda: flood.sent and next(iter(rig.gateway.live)).paused)
        held = -1
        while held != flood.sent:
            held = flood.sent
            await asyncio.sleep(0.05)
        assert held * len(PIECE) < 16_000_000  # socket buffers of both hops, 4 MB each way at most on Linux
        rig.later(500)  # a slow client is not a silent backend
        assert rig.faults == []
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # see above
        got = await client.head()
        size = 0
        while await client.chunk(got):
            size += len(got.body)
            got.body = b""
        assert (got.complete, size) == (True, PIECES * len(PIECE))


async def test_a_client_that_never_reads_gives_its_place_at_the_engine_back(form: str) -> None:
    flood = Flood()
    script: Script = flood
    async with scene(form, script) as (rig, _, client):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # see above
        await client.send(post(CHAT_STREAM))
        await until(lambda: flood.sent and next(iter(rig.gateway.live)).paused)
        rig.later(601)
        assert not rig.gateway.live
        assert [backend.own_in_flight for backend in rig.gateway.fleet.backends.values()] == [0]


async def test_memory_does_not_grow_with_a_streams_length(form: str) -> None:
    async with scene(form, Flood()) as (_, _, client):
        await client.send(post(CHAT_STREAM))
        got = await client.head()
        before = _kilobytes()
        while await client.chunk(got):
            got.body = b""
        assert got.complete
        assert _kilobytes() - before < 30_000


def _kilobytes() -> int:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def test_a_hundred_megabytes_pass(form: str) -> None:
    body = CHAT.replace(b"hi", b"A" * 100_000_000)
    async with scene(form) as (_, backend, client):
        before = _kilobytes()
        await client.send(post(body))
        assert (await client.answer()).body == ANSWER
        assert backend.requests[0].body == body
        # The test itself holds it three times: as sent, as the scripted backend's buffer, as what it got.
        assert _kilobytes() - before < 900_000


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_above_the_limit_is_413(form: str, framing: str) -> None:
    async with scene(form, server={"max_body_bytes": 10_000}) as (rig, backend, client):
        body = b"x" * 10_001
        request = post(body)
        if framing == "chunked":
            request = (
                post(b"", headers="transfer-encoding: chunked\r\n").replace(b"content-length: 0\r\n", b"")
                + chunk(body)
                + LAST_CHUNK
            )
        got = await client.ask(request)
        assert (got.status, got.error()["code"], backend.requests) == (413, "request_too_large", [])
        async with connected(rig.port) as second:
            fits = CHAT.replace(b"hi", b"x" * (10_000 - len(CHAT) + 2))
            assert len(fits) == 10_000
            assert (await second.ask(post(fits))).status == 200


async def test_a_head_that_takes_for_ever() -> None:
    """Bytes now and then do not help: the head has to be complete in time."""
    async with scene("fast") as (rig, _, client):
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\n")
        await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        await client.send(b"host: g\r\n")
        await asyncio.sleep(0.01)
        rig.server.lose_patience(began)
        got = await client.answer()
        assert (got.status, got.error()["code"], got.header("connection")) == (408, "request_timeout", "close")
        assert await client.closed()


async def test_a_body_may_be_slow_but_not_silent() -> None:
    async with scene("fast") as (rig, backend, client):
        await client.send(post(CHAT)[:-20])
        await asyncio.sleep(0.01)
        early = asyncio.get_running_loop().time()
        await client.send(post(CHAT)[-20:-10])
        await asyncio.sleep(0.01)
        rig.server.lose_patience(early)
        await asyncio.sleep(0.01)
        rig.server.lose_patience(asyncio.get_running_loop().time())
        got = await client.answer()
        assert (got.status, got.error()["code"], backend.requests) == (408, "request_timeout", [])
        assert await client.closed()


async def test_a_connection_that_never_speaks_is_closed_and_one_that_waits_for_its_answer_is_not() -> None:
    async with scene("fast", answer()) as (rig, _, client):
        assert (await client.ask(post(CHAT))).status == 200
        async with connected(rig.port) as mute:
            await until(lambda: len(rig.server.server_state.connections) == 2)
            rig.server.lose_patience(asyncio.get_running_loop().time())
            assert await mute.closed()
        assert (await client.ask(post(CHAT))).status == 200


async def test_line_ends_alone_keep_no_connection_open() -> None:
    """They are allowed before a request, and begin none."""
    async with scene("fast", answer()) as (rig, _, client):
        assert (await client.ask(post(CHAT))).status == 200
        async with connected(rig.port) as mute:
            await mute.send(b"\r\n")
            await asyncio.sleep(0.01)
            rig.server.lose_patience(asyncio.get_running_loop().time())
            assert await mute.closed()
        await client.send(b"\r\n\r\n")
        await asyncio.sleep(0.01)
        let_its_keep_alive_run_out(rig)
        assert await client.closed()


async def test_what_follows_an_answer_in_one_read_is_no_idleness() -> None:
    """The first request is answered before the second one is read."""
    ready = asyncio.Event()

    async with scene("fast", answer_after(ready), answer()) as (rig, backend, client):
        await client.send(post(b"{") + post(CHAT))
        assert (await client.answer()).status == 400
        await backend.asked()
        let_its_keep_alive_run_out(rig)
        ready.set()
        assert (await client.answer()).body == ANSWER
        let_its_keep_alive_run_out(rig)
        assert await client.closed()


async def test_half_a_head_behind_an_answer_is_no_idleness() -> None:
    ready = asyncio.Event()

    async with scene("fast", answer_after(ready), answer()) as (rig, backend, client):
        request = post(CHAT)
        await client.send(request + request[:30])
        await backend.asked()
        ready.set()
        assert (await client.answer()).body == ANSWER
        let_its_keep_alive_run_out(rig)
        await client.send(request[30:])
        assert (await client.answer()).body == ANSWER


def let_its_keep_alive_run_out(rig: Rig) -> None:
    """Of the only connection there is."""
    (connection,) = rig.server.server_state.connections
    assert isinstance(connection, GatewayProtocol)
    if connection.timeout_keep_alive_task is not None:
        connection.timeout_keep_alive_task.cancel()
    connection.line.idle_since -= 1000
    connection.timeout_keep_alive_handler()


async def test_bytes_of_a_pipelined_body_do_not_pile_up() -> None:
    """Behind a running answer, reading pauses; nothing is lost."""
    release = asyncio.Event()

    async with scene("fast", answer_after(release), answer()) as (rig, backend, client):
        big = post(CHAT.replace(b"hi", b"y" * 20_000_000))
        client.writer.write(post(CHAT) + big)
        await backend.asked()
        (connection,) = rig.server.server_state.connections
        await until(lambda: connection.flow.read_paused)  # type: ignore[union-attr]  # uvicorn's flow control
        release.set()
        assert [(await client.answer()).body for _ in range(2)] == [ANSWER, ANSWER]
        assert len(backend.requests[1].body) > 20_000_000
