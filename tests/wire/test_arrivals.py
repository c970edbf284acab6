"""Clients that come at once do not wait for each other."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.wire.arrivals import MOST, Arrivals
from tests.scripted.backend import ScriptedBackend
from tests.scripted.certificates import certificate
from tests.scripted.client import CHAT, post
from tests.scripted.clock import until
from tests.scripted.rig import Rig, config_for, running
from tests.scripted.scripts import ANSWER, answer

CROWD = 2 * MOST


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket as a server has it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def come(rig: Rig, clients: contextlib.ExitStack, number: int) -> list[socket.socket]:
    """Clients that connect while the gateway does something else."""
    return [clients.enter_context(socket.create_connection(("127.0.0.1", rig.port))) for _ in range(number)]


async def test_a_crowd_is_taken_in_a_few_turns_of_the_loop() -> None:
    async with ScriptedBackend(answer()).listening() as backend:
        async with running(config_for({"plain": backend.url}), "fast") as rig:
            with contextlib.ExitStack() as clients:
                come(rig, clients, CROWD)
                turns = 0
                while len(rig.server.server_state.connections) < CROWD:
                    await asyncio.sleep(0)
                    turns += 1
                assert turns < CROWD / 4
                for client in come(rig, clients, 3):
                    client.sendall(post(CHAT))
                    client.setblocking(False)
                    said = b""
                    while not said.endswith(ANSWER):
                        said += await asyncio.get_running_loop().sock_recv(client, 65536)
            await rig.at_rest()
        await until(lambda: not rig.server.server_state.connections)


async def test_who_speaks_no_tls_is_not_our_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    arrivals = Arrivals()
    with listening() as listener, contextlib.ExitStack() as clients:
        arrivals.watch([listener], asyncio.Protocol, certificate(tmp_path).for_server())
        strangers = [clients.enter_context(socket.create_connection(listener.getsockname())) for _ in range(8)]
        for stranger in strangers:
            stranger.sendall(post(CHAT))
        arrivals.came()
        await until(lambda: arrivals._arriving)
        await until(lambda: not arrivals._arriving)
        for stranger in strangers:
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
    assert not caplog.records


async def test_who_is_on_the_way_in_when_the_gateway_ends_does_not_hold_it() -> None:
    config = config_for({"plain": "http://127.0.0.1:1"}, {"grace_seconds": 60})
    async with running(config, "fast") as rig:
        with contextlib.ExitStack() as clients:
            guests = come(rig, clients, CROWD)
            await until(lambda: rig.server.server_state.connections)
            await asyncio.wait_for(rig.server.shutdown(), 5)
            for guest in guests:
                guest.settimeout(5)
                with contextlib.suppress(ConnectionResetError):
                    assert guest.recv(1) == b""


async def test_what_fails_for_another_reason_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> asyncio.Protocol:
        raise ValueError("ours")

    arrivals = Arrivals()
    with listening() as listener:
        arrivals.watch([listener], broken, None)
        with socket.create_connection(listener.getsockname()) as client:
            arrivals.came()
            await until(lambda: caplog.records)
            assert client.recv(1) == b""
    assert "could not be taken" in caplog.text
    assert "ours" in caplog.text


async def test_when_the_door_is_shut_nobody_is_taken() -> None:
    arrivals = Arrivals()
    with listening() as listener:
        arrivals.watch([listener], asyncio.Protocol, None)
    arrivals.came()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not arrivals._arriving
