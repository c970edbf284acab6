"""Requests that come together are worked on together, and each as if it were alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from policies.events import Arrived, Cancelled, Dispatched, Finished
from proxy.errors import BadRequest
from proxy.relay import Relay
from proxy.version import compiled
from proxy.wire.answer import AnswerHead
from proxy.wire.nobody import Nobody
from tests.scripted.backend import ScriptedBackend, Visit
from tests.scripted.client import CHAT, CHAT_STREAM, Client, connected, post
from tests.scripted.clock import until
from tests.scripted.rig import Rig, config_for, running, scene
from tests.scripted.scripts import answer

AT_ONCE = 8


async def patient(visit: Visit) -> None:
    """Streams are held, so that the gateway is never without a request."""
    if b'"stream"' in visit.request.body:
        await visit.until_gone()
    else:
        await answer()(visit)


@contextlib.asynccontextmanager
async def crowded(form: str) -> AsyncIterator[tuple[Rig, list[ScriptedBackend], list[Client]]]:
    """Two backends, a stream under way, and clients that are about to ask."""
    backends = [ScriptedBackend(patient), ScriptedBackend(patient)]
    async with contextlib.AsyncExitStack() as stack:
        for backend in backends:
            await stack.enter_async_context(backend.listening())
        urls = {f"plain-{number}": backend.url for number, backend in enumerate(backends)}
        rig = await stack.enter_async_context(running(config_for(urls, policy={"name": "least-load"}), form))
        async with connected(rig.port) as first:
            await first.send(post(CHAT_STREAM))
            await until(lambda: rig.gateway.live)
            async with contextlib.AsyncExitStack() as clients:
                yield rig, backends, [await clients.enter_async_context(connected(rig.port)) for _ in range(AT_ONCE)]
        await rig.at_rest()


async def test_each_decision_knows_of_the_one_before(form: str) -> None:
    async with crowded(form) as (rig, backends, clients):
        for client in clients:
            client.writer.write(post(CHAT))
        assert [(await client.answer()).status for client in clients] == [200] * AT_ONCE
        await until(lambda: len(rig.of(Finished)) == AT_ONCE)
        placed = [event for event in rig.events if isinstance(event, Arrived | Dispatched)]
        for asked, sent in zip(placed[::2], placed[1::2], strict=True):
            assert (type(asked), type(sent), sent.id) == (Arrived, Dispatched, asked.id)
        assert [event.at for event in placed] == sorted(event.at for event in placed)
        assert abs(len(backends[0].requests) - len(backends[1].requests)) <= 1


async def test_a_request_that_cannot_be_read_is_no_matter_to_the_others(form: str) -> None:
    async with crowded(form) as (_, _, clients):
        for number, client in enumerate(clients):
            client.writer.write(post(b"{" if number == 1 else CHAT))
        assert [(await client.answer()).status for client in clients] == [200, 400] + [200] * (AT_ONCE - 2)


def break_once(stage: str, monkeypatch: pytest.MonkeyPatch, error: type[Exception] = ZeroDivisionError) -> None:
    """The next request that comes to this stage meets a fault, ours unless the error says otherwise."""
    broken = getattr(Relay, stage)

    def breaks(relay: Relay, *words: object) -> object:
        monkeypatch.setattr(Relay, stage, broken)
        raise error("broken")

    monkeypatch.setattr(Relay, stage, breaks)


stages = pytest.mark.parametrize("stage", ["_readable", "_assign", "_count", "prepare"])
from_source = pytest.mark.skipif(
    compiled(), reason="machine code calls its own methods, whatever is put in their place"
)


@stages
@from_source
async def test_a_fault_of_ours_costs_a_request_that_is_alone(
    form: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backend may have it already: that answer is nobody's."""
    async with scene(form) as (_, _, client):
        for _ in range(3):
            break_once(stage, monkeypatch)
            assert [(await client.ask(post(CHAT))).status for _ in range(3)] == [500, 200, 200]


@stages
@from_source
async def test_a_fault_of_ours_costs_one_request(form: str, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowded(form) as (_, _, clients):
        break_once(stage, monkeypatch)
        for client in clients:
            client.writer.write(post(CHAT))
        statuses = [(await client.answer()).status for client in clients]
        assert sorted(statuses) == [200] * (AT_ONCE - 1) + [500]


@pytest.mark.parametrize("stage", ["_readable", "_assign", "prepare"])
@from_source
async def test_a_fault_of_the_clients_is_told_alike_alone_and_in_a_wave(
    form: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(form) as (_, _, client):
        break_once(stage, monkeypatch, BadRequest)
        assert [(await client.ask(post(CHAT))).status for _ in range(2)] == [400, 200]
    async with crowded(form) as (_, _, clients):
        break_once(stage, monkeypatch, BadRequest)
        for client in clients:
            client.writer.write(post(CHAT))
        assert sorted([(await client.answer()).status for client in clients]) == [200] * (AT_ONCE - 1) + [400]


async def test_a_listener_that_fails_is_no_matter_to_requests_and_to_other_listeners(form: str) -> None:
    def fails(said: object) -> None:
        raise ZeroDivisionError

    async with scene(form) as (rig, _, client):
        rig.gateway.listeners.insert(0, fails)
        assert [(await client.ask(post(CHAT))).status for _ in range(2)] == [200, 200]
        await until(lambda: len(rig.of(Finished)) == 2)


async def test_who_leaves_before_the_wave_breaks_was_never_there(form: str) -> None:
    async with crowded(form) as (rig, backends, _):
        surface = rig.gateway.surface_at(b"POST", b"/v1/chat/completions")
        assert surface is not None
        client = Nobody(surface, "left", CHAT)
        rig.gateway.enter(client, surface)
        assert client.served is not None
        client.served.client_left()
        await asyncio.sleep(0.01)
        assert sum(len(backend.requests) for backend in backends) == 1
        assert [event for event in rig.events if getattr(event, "id", "") == "left"] == []


PLAIN = AnswerHead(200, b"OK", [(b"content-type", b"application/json")])
DOCUMENT = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}'


async def one_of_two(rig: Rig, client: Client) -> Relay:
    """The relay of a client that is not the only one under way; its backend is about to answer in one piece."""
    before = set(rig.gateway.live)
    await client.send(post(CHAT_STREAM))
    await until(lambda: len(rig.gateway.live) > len(before))
    (relay,) = rig.gateway.live - before
    await until(lambda: relay.exchange is not None and relay.exchange.connection is not None)
    assert relay.exchange is not None
    relay.exchange.cancel()
    return relay


async def test_an_answer_waits_until_the_loop_has_heard_the_others_and_no_longer(form: str) -> None:
    async with crowded(form) as (rig, _, clients):
        relay = await one_of_two(rig, clients[0])
        assert relay.whole(PLAIN, DOCUMENT)
        assert not relay.inbound.started
        got = await clients[0].answer()
        assert (got.status, got.body) == (200, DOCUMENT)
        await until(lambda: [event.completion_tokens for event in rig.of(Finished)] == [5])


async def test_who_is_alone_gets_the_answer_at_once(form: str) -> None:
    async with scene(form, patient) as (rig, _, client):
        relay = await one_of_two(rig, client)
        assert relay.whole(PLAIN, DOCUMENT)
        assert relay.inbound.started
        assert (await client.answer()).body == DOCUMENT


async def test_an_answer_that_waits_is_given_when_the_grace_period_ends(form: str) -> None:
    async with crowded(form) as (rig, _, clients):
        relay = await one_of_two(rig, clients[0])
        assert relay.whole(PLAIN, DOCUMENT)
        relay.stopped()
        assert relay.inbound.started
        assert (await clients[0].answer()).body == DOCUMENT


async def test_who_leaves_while_the_answer_waits_had_it(form: str) -> None:
    async with crowded(form) as (rig, _, clients):
        relay = await one_of_two(rig, clients[0])
        assert relay.whole(PLAIN, DOCUMENT)
        relay.client_left()
        await until(lambda: [event.id for event in rig.of(Finished)] == [relay.id])
        assert rig.of(Cancelled) == []


@from_source
async def test_a_fault_of_ours_while_answers_are_given_costs_one(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowded(form) as (rig, _, clients):
        relays = [await one_of_two(rig, client) for client in clients[:3]]
        for relay in relays:
            assert relay.whole(PLAIN, DOCUMENT)
        lines, broken = rig.gateway.answer_lines, relays[1]
        monkeypatch.setattr(rig.gateway, "answer_lines", lambda relay: 1 / 0 if relay is broken else lines(relay))
        assert [(await client.answer()).body for client in clients[:3:2]] == [DOCUMENT, DOCUMENT]
        await until(lambda: len(rig.of(Finished)) == 3)
