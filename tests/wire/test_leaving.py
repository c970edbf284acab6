"""The client leaves, in every phase: the backend's work stops at once, and nothing stays counted."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from policies.events import Cancelled, Failed, Finished
from proxy.simulated.character import Character
from proxy.simulated.running import simulated
from tests.scripted.backend import Script, ScriptedBackend, Visit
from tests.scripted.client import CHAT, CHAT_STREAM, Client, connected, get, post
from tests.scripted.clock import until
from tests.scripted.rig import config_for, running, scene
from tests.scripted.scripts import ANSWER, CHUNKED, EVENTS, JSON, SSE, answer, chunk, head, then_hold, whole

LEAVE: dict[str, Callable[[Client], None]] = {"FIN": Client.leave, "RST": Client.reset}
WAITING: dict[str, tuple[Script, bytes]] = {
    "for the head": (then_hold(), CHAT_STREAM),
    "for the head of a whole answer": (then_hold(), CHAT),
    "for the first event": (then_hold(head(SSE + CHUNKED)), CHAT_STREAM),
    "for the body of a whole answer": (then_hold(head(JSON + b"content-length: 99\r\n")), CHAT),
    "in mid-stream": (then_hold(head(SSE + CHUNKED), chunk(EVENTS[0])), CHAT_STREAM),
    "in the middle of a whole answer": (then_hold(whole()[:-9]), CHAT),
}


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("phase", WAITING)
async def test_the_backends_connection_closes(
    form: str, phase: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    script, body = WAITING[phase]
    async with scene(form, script) as (rig, backend, client):
        await client.send(post(body))
        await backend.asked()
        if "head" not in phase:
            await until(lambda: next(iter(rig.gateway.live)).status == 200)
        if "middle" in phase or "mid" in phase:
            await client.reader.readuntil(b"\r\n\r\n")
        LEAVE[how](client)
        await until(lambda: backend.visits[0].gone)
        await rig.at_rest()
        assert [type(event) for event in rig.events if isinstance(event, Cancelled | Failed | Finished)] == [Cancelled]
        assert rig.site.outcomes[0].outcome == "cancelled"
        await until(lambda: not rig.server.server_state.tasks)
        assert caplog.records == []


async def test_while_the_gateway_still_connects(form: str) -> None:
    """A TLS backend that accepts and says nothing."""

    async def silent(visit: Visit) -> None:
        await visit.until_gone()

    async with ScriptedBackend(greeting=silent).listening() as backend:
        url = f"https://127.0.0.1:{backend.port}"
        async with running(config_for({"plain": url}, timeouts={"connect_seconds": 1000}), form) as rig:
            async with connected(rig.port) as client:
                await client.send(post(CHAT))
                await until(lambda: backend.visits)
                client.leave()
                await until(lambda: backend.visits[0].gone)
            await rig.at_rest()


async def test_while_it_sends_its_request(form: str) -> None:
    async with scene(form) as (rig, backend, client):
        await client.send(post(b"x" * 1000)[:-500])
        await until(lambda: rig.server.server_state.connections)
        await asyncio.sleep(0.01)
        client.leave()
        await until(lambda: not rig.server.server_state.connections)
        assert (backend.requests, rig.gateway.live) == ([], set())


async def test_while_another_request_waits_behind(form: str) -> None:
    async with scene(form, then_hold()) as (_, backend, client):
        await client.send(post(CHAT) + (post(CHAT) + get("/health") if form == "fast" else b""))
        await backend.asked()
        client.leave()
        await until(lambda: backend.visits[0].gone)
        assert len(backend.requests) == 1


async def test_while_a_control_page_is_answered_before_a_pipelined_request(caplog: pytest.LogCaptureFixture) -> None:
    """uvicorn tells only the newest request of a connection that it is lost; ours may stand behind it."""
    async with scene("fast") as (rig, _, client):
        await client.send(get("/metrics") + post(CHAT))
        await until(lambda: rig.server.server_state.tasks)
        client.reset()
        await until(lambda: not rig.server.server_state.tasks)
        assert caplog.records == []


async def test_while_the_request_moves_to_another_backend(form: str) -> None:
    down, slow = ScriptedBackend(answer(b"{}", b"500 Down")), ScriptedBackend(then_hold())
    async with (
        down.listening(),
        slow.listening(),
        running(config_for({"spec": down.url, "plain": slow.url}), form) as rig,
    ):
        async with connected(rig.port) as client:
            await client.send(post(CHAT))
            await slow.asked()
            client.leave()
            await until(lambda: slow.visits[0].gone)
        await rig.at_rest()
        assert rig.faults == [("spec", "status")]


async def test_a_client_that_left_as_the_answer_ended_is_no_cancellation(form: str) -> None:
    async with scene(form) as (rig, _, client):
        assert (await client.ask(post(CHAT))).body == ANSWER
        client.leave()
        await rig.at_rest()
        assert len(rig.of(Finished)) == 1


@pytest.mark.parametrize("body", [CHAT, CHAT_STREAM], ids=["whole", "stream"])
async def test_the_simulated_engine_stops_generating(form: str, body: bytes) -> None:
    """Its gauge of running requests falls to zero long before the answer could have ended."""
    slow = Character(step_ms=20, max_requests=4)
    long = body.replace(b'"m"', b'"simulated-model"').replace(
        b'"messages"', b'"max_tokens":4000,"ignore_eos":true,"messages"'
    )
    async with simulated(slow) as url:
        config = config_for({"plain": url}, plain={"models": ["simulated-model"]})
        async with running(config, form) as rig:
            async with connected(rig.port) as client:
                await client.send(post(long))
                await _gauge(url, 1.0)
                client.leave()
                await _gauge(url, 0.0)
            await rig.at_rest()


async def _gauge(url: str, wanted: float) -> None:
    """Wait until the engine's metrics page tells so many running requests."""
    port = int(url.rpartition(":")[2])
    async with connected(port) as client:
        while True:
            page = (await client.ask(get("/metrics"), "GET")).body.decode()
            running_now = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running")]
            if float(running_now[0].split()[-1]) == wanted:
                return


async def test_a_hundred_that_leave_at_random_moments_leave_nothing_behind(form: str) -> None:
    async with scene(form, answer()) as (rig, backend, _):
        for step in range(100):
            async with connected(rig.port) as client:
                with contextlib.suppress(ConnectionError):
                    await client.send(post(CHAT))
                    for _ in range(step % 7):
                        await asyncio.sleep(0)
                (Client.reset if step % 2 else Client.leave)(client)
        await until(lambda: len(rig.server.server_state.connections) <= 1)
        await rig.at_rest()
        assert len(backend.requests) <= 100
