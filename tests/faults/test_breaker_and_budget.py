"""What follows from failures: the breaker opens and heals, the watchdog moves requests, retries cannot storm."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from policies.breaker import CLOSED, HALF_OPEN, OPEN, Breaker
from policies.events import Dispatched
from proxy.relay import Relay
from tests.scripted.backend import Script, ScriptedBackend, free_port
from tests.scripted.client import CHAT, CHAT_STREAM, connected, post
from tests.scripted.clock import until
from tests.scripted.rig import Rig, config_for, running
from tests.scripted.scripts import ANSWER, CHUNKED, SSE, answer, chunk, head, stream, then_close, then_hold

DOWN = answer(b'{"error":{}}', b"500 Down")


@contextlib.asynccontextmanager
async def two(
    form: str, first: Script, second: Script, **more: Any
) -> AsyncIterator[tuple[Rig, ScriptedBackend, ScriptedBackend]]:
    spec, plain = ScriptedBackend(first), ScriptedBackend(second)
    async with (
        spec.listening(),
        plain.listening(),
        running(config_for({"spec": spec.url, "plain": plain.url}, **more), form) as rig,
    ):
        yield rig, spec, plain
        await rig.at_rest()


def breaker(rig: Rig, name: str = "spec") -> Breaker:
    return rig.gateway.fleet.backends[name].breaker


async def ask(rig: Rig, body: bytes = CHAT) -> int:
    async with connected(rig.port) as client:
        return (await client.ask(post(body))).status


async def test_it_opens_rests_and_heals_by_one_probe(form: str) -> None:
    async with two(form, DOWN, answer()) as (rig, spec, plain):
        for _ in range(3):
            assert await ask(rig) == 200
        assert (breaker(rig).state, len(spec.requests), len(plain.requests)) == (OPEN, 3, 3)
        assert await ask(rig) == 200
        assert len(spec.requests) == 3
        spec.scripts = [answer()]
        rig.clock.advance(5.1)
        assert await ask(rig) == 200
        assert (breaker(rig).state, len(spec.requests), len(plain.requests)) == (CLOSED, 4, 4)


async def test_a_failed_probe_doubles_the_rest(form: str) -> None:
    async with two(form, DOWN, answer()) as (rig, spec, _):
        for _ in range(3):
            await ask(rig)
        rig.clock.advance(5.1)
        assert await ask(rig) == 200
        assert (breaker(rig).state, breaker(rig).opened_for, len(spec.requests)) == (OPEN, 10.0, 4)
        rig.clock.advance(5.1)
        await ask(rig)
        assert len(spec.requests) == 4


async def test_one_probe_at_a_time_and_a_cancelled_one_lets_the_next_in(form: str) -> None:
    async with two(form, DOWN, answer()) as (rig, spec, plain):
        for _ in range(3):
            await ask(rig)
        spec.scripts = [then_hold()]
        rig.clock.advance(5.1)
        async with connected(rig.port) as probing:
            await probing.send(post(CHAT))
            await until(lambda: len(spec.requests) == 4)
            assert breaker(rig).state == HALF_OPEN
            assert await ask(rig) == 200
            assert (len(spec.requests), len(plain.requests)) == (4, 4)
        await rig.at_rest()
        spec.scripts = [answer()]
        assert await ask(rig) == 200
        assert (breaker(rig).state, len(spec.requests)) == (CLOSED, 5)


@pytest.mark.parametrize(
    "status", [b"400 Bad", b"401 No", b"404 None", b"413 Big", b"422 Odd", b"429 Slow", b"503 Busy", b"501 Lacks"]
)
async def test_no_4xx_no_busy_and_no_missing_surface_ever_opens_it(form: str, status: bytes) -> None:
    backend = ScriptedBackend(answer(b"{}", status))
    async with backend.listening(), running(config_for({"plain": backend.url}), form) as rig:
        for _ in range(8):
            assert await ask(rig) == int(status[:3])
        assert (breaker(rig, "plain").state, breaker(rig, "plain").failures) == (CLOSED, 0)
        await rig.at_rest()


@pytest.mark.parametrize("status", [b"500 Oops", b"502 Bad", b"504 Late"])
async def test_a_5xx_is_tried_elsewhere_and_the_last_one_is_passed_on(form: str, status: bytes) -> None:
    async with two(form, answer(b"first", status), answer(b"second", status)) as (rig, spec, plain):
        async with connected(rig.port) as client:
            got = await client.ask(post(CHAT))
        assert (got.status, got.body) == (int(status[:3]), b"second")
        assert (len(spec.requests), len(plain.requests)) == (1, 1)
        assert rig.faults == [("spec", "status"), ("plain", "status")]


@pytest.mark.parametrize("failing", [answer(b"parse error", b"500 Oops"), then_close()], ids=["500", "closes"])
async def test_no_backend_is_to_blame_for_a_long_text_that_is_no_json(form: str, failing: Script) -> None:
    """It is not looked at before it goes on; llama.cpp answers 500 to it, and three of those would open a breaker."""
    broken = b'{"model":"m","messages":[{"role":"user","content":"\\q%b"}]}' % (b"x" * 90_000)
    async with two(form, failing, failing) as (rig, spec, plain):
        for number in range(4):
            async with connected(rig.port) as client:
                got = await client.ask(post(broken))
            assert (got.status, got.error()["type"]) == (400, "invalid_request_error")
            assert len(spec.requests) + len(plain.requests) == number + 1
        assert rig.faults == []
        assert breaker(rig).failures == breaker(rig, "plain").failures == 0
        await rig.at_rest()
        async with connected(rig.port) as client:
            assert (await client.ask(post(broken.replace(b"\\q", b"")))).status in (500, 502)
        assert [backend for backend, _ in rig.faults] == ["spec", "plain"]


async def test_a_full_queue_moves_and_a_429_that_names_a_time_is_the_clients(form: str) -> None:
    async with two(form, answer(b"full", b"429 Full"), answer()) as (rig, spec, plain):
        assert await ask(rig) == 200
        rig.clock.advance(2)
        spec.scripts = [answer(b"your rate", b"429 Slow Down", b"retry-after: 9\r\n")]
        assert await ask(rig) == 429
        assert len(plain.requests) == 1


async def test_a_request_that_cannot_be_looked_after_keeps_no_other_waiting(
    form: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    give_up, tried = Relay.give_up, list[str]()

    def at_the_second_try(relay: Relay, fault: str) -> None:
        tried.append(relay.id)
        if tried.count(relay.id) == 1 and relay.id == tried[0]:
            raise ValueError("ours")
        give_up(relay, fault)

    monkeypatch.setattr(Relay, "give_up", at_the_second_try)
    backend = ScriptedBackend(then_hold())
    async with backend.listening(), running(config_for({"plain": backend.url}), form) as rig:
        async with connected(rig.port) as one, connected(rig.port) as other:
            await one.send(post(CHAT))
            await other.send(post(CHAT))
            await until(lambda: len(backend.requests) == 2)
            rig.later(301)
            assert len(rig.gateway.live) == 1
            assert "could not be looked after" in caplog.text
            rig.later(0.25)
            assert [(await client.answer()).status for client in (one, other)] == [504, 504]
        await rig.at_rest()


async def test_all_down_is_one_error_and_one_try_each(form: str) -> None:
    urls = {"spec": f"http://127.0.0.1:{free_port()}", "plain": f"http://127.0.0.1:{free_port()}"}
    async with running(config_for(urls), form) as rig:
        async with connected(rig.port) as client:
            got = await client.ask(post(CHAT))
        assert (got.status, got.error()["code"]) == (502, "backend_unreachable")
        assert rig.faults == [("spec", "connect"), ("plain", "connect")]
        await rig.at_rest()


async def test_retries_are_a_share_of_arrivals(form: str) -> None:
    """Everything fails: without a budget every request would be sent twice."""
    budget = {"admission": {"retry_burst": 4, "retry_share": 0.1}, "breaker": {"failures_to_open": 1000}}
    async with two(form, DOWN, DOWN, policy=budget) as (rig, _, _):
        for _ in range(40):
            assert await ask(rig) == 500
        assert 40 < len(rig.of(Dispatched)) <= 40 + 4 + 40 * 0.1


async def test_a_backend_that_hangs_loses_its_streams_that_nobody_has_seen(form: str) -> None:
    quick = {"stall": {"cold_first_token_seconds": 10.0}}
    async with two(form, then_hold(head(SSE + CHUNKED)), stream(), policy=quick) as (rig, spec, plain):
        async with connected(rig.port) as client:
            await client.send(post(CHAT_STREAM))
            await spec.asked()
            rig.later(5)
            assert rig.faults == []
            rig.later(6)
            got = await client.answer()
        assert (got.status, got.complete) == (200, True)
        assert rig.faults == [("spec", "stalled")]
        assert (len(spec.requests), len(plain.requests)) == (1, 1)
        await until(lambda: spec.visits[0].gone)


async def test_a_stream_that_was_seen_is_never_moved(form: str) -> None:
    piece = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"once"}}]}\n\n')
    async with two(form, then_hold(head(SSE + CHUNKED), piece), stream()) as (rig, _, plain):
        async with connected(rig.port) as client:
            await client.send(post(CHAT_STREAM))
            got = await client.head()
            await client.until(got, b"once")
            for _ in range(30):
                rig.later(5)
            await client.body(got)
        assert (got.complete, got.body.count(b"once"), plain.requests) == (False, 1, [])
        assert rig.faults == [("spec", "idle-timeout")]


async def test_three_backends_fail_one_after_the_other(form: str) -> None:
    third = ScriptedBackend(stream())
    cut, dead = ScriptedBackend(then_close(head(SSE + CHUNKED))), ScriptedBackend(then_close())
    async with cut.listening(), dead.listening(), third.listening():
        config = config_for({"spec": cut.url, "spec-2": dead.url, "plain": third.url})
        async with running(config, form) as rig:
            async with connected(rig.port) as client:
                got = await client.ask(post(CHAT_STREAM))
            assert (got.status, got.complete) == (200, True)
            assert sorted(rig.faults) == [("spec", "truncated"), ("spec-2", "closed")]
            assert [len(b.requests) for b in (cut, dead, third)] == [1, 1, 1]
            await rig.at_rest()


async def test_many_at_once_through_a_flapping_backend_are_answered_once_each(form: str) -> None:
    turns = [answer(), DOWN, then_close(), answer(), then_close(b"HTTP/1.1 200 O"), answer()]
    generous = {"admission": {"retry_burst": 100}}
    async with two(form, answer(), answer(), policy=generous) as (rig, spec, plain):
        spec.scripts = turns * 10
        results = await asyncio.gather(*(_body(rig) for _ in range(40)))
        assert results == [ANSWER] * 40
        assert len(plain.requests) == sum(event.backend == "plain" for event in rig.of(Dispatched))
        assert len(rig.of(Dispatched)) == 40 + len(rig.faults)


async def _body(rig: Rig) -> bytes:
    async with connected(rig.port) as client:
        return (await client.ask(post(CHAT))).body
