"""``serve --workers 2`` as an operator meets it: real processes, one port, one page, one stop."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.journal import entries
from tests.scripted.backend import Script, ScriptedBackend, Visit
from tests.scripted.client import CHAT, CHAT_STREAM, connected, post
from tests.scripted.clock import until
from tests.scripted.scripts import CHUNKED, EVENTS, LAST_CHUNK, SSE, answer, chunk, head

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(120)


class Served:
    """The parent process, its log, and its port."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.port = 0
        self._more = asyncio.Condition()

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._more:
                self.lines.append(line.decode())
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()

    async def said(self, *words: str, after: int = 0) -> str:
        """The first line that holds all these words, as soon as there is one."""
        async with self._more:
            while True:
                for line in self.lines[after:]:
                    if all(word in line for word in words):
                        return line
                assert self.process.returncode is None, "".join(self.lines)
                await self._more.wait()

    async def scrape(self) -> dict[str, float]:
        """Sums of the samples of each metric, asked over a new connection."""
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{self.port}/metrics")).text
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    async def state(self) -> dict[str, Any]:
        """``/admin/state`` from whichever worker gets the connection."""
        async with httpx.AsyncClient(trust_env=False, headers={"authorization": "Bearer k"}) as client:
            state: dict[str, Any] = (await client.get(f"http://127.0.0.1:{self.port}/admin/state")).json()
        return state

    async def ask(self, times: int) -> None:
        """Requests, each over a connection of its own."""
        for _ in range(times):
            async with connected(self.port) as client:
                assert (await client.ask(post(CHAT))).status == 200


def configuration(folder: Path, url: str, **server: Any) -> Path:
    settings = {"port": 0, "workers": 2, "admin_on_public_port": True, "grace_seconds": 20.0} | server
    settings["admin_key_sha256"] = sha256(b"k").hexdigest()
    lines = ["[server]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    lines += ["[[backends]]", f'url = "{url}"', 'lane = "plain"', 'models = ["m"]']
    lines += ["[journal]", f'path = "{folder / "journal.jsonl"}"']
    file = folder / "draftlane.toml"
    file.write_text("\n".join(lines))
    return file


@contextlib.asynccontextmanager
async def started(file: Path) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", "serve", "-c", str(file), stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    served = Served(process)
    reader = asyncio.create_task(served.read())
    try:
        yield served
    finally:
        if process.returncode is None:
            process.kill()  # the workers end by themselves when their parent is gone
        await process.wait()
        await reader


@contextlib.asynccontextmanager
async def serving(folder: Path, *scripts: Script) -> AsyncIterator[Served]:
    async with (
        ScriptedBackend(*(scripts or (answer(),))).listening() as backend,
        started(configuration(folder, backend.url)) as served,
    ):
        line = json.loads(await served.said("listening on"))
        served.port = int(line["message"].partition(",")[0].rpartition(":")[2])
        yield served


async def stopped(served: Served, name: signal.Signals = signal.SIGTERM) -> int:
    served.process.send_signal(name)
    return await served.process.wait()


def process_of(line: str) -> int:
    return int(json.loads(line)["message"].rpartition(" ")[2].rstrip(")"))


async def test_two_workers_are_one_gateway(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.ask(12)
        assert {(await served.scrape())["draftlane_requests_total"] for _ in range(6)} == {12}
        states = [await served.state() for _ in range(12)]
        assert {state["worker"] for state in states} <= {1, 2}
        for state in states:
            assert [one["worker"] for one in state["workers"]] == [1, 2]
            assert len(state["recent"]) == 12
        await until_learnt(served, 12)
        assert await stopped(served) == 0
    told = [list(entries([tmp_path / f"journal.{worker}.jsonl"])) for worker in (1, 2)]
    finished = [sum(type(entry).__name__ == "Finished" for entry in one) for one in told]
    learnt = [sum(type(entry).__name__ == "PeerLearnt" for entry in one) for one in told]
    assert sum(finished) == 12
    assert learnt == finished[::-1], "each worker learns what the other one saw"


async def until_learnt(served: Served, lessons: int) -> None:
    while (await served.state())["backends"][0]["finished"] < lessons:  # noqa: ASYNC110  # another process sets no event
        await asyncio.sleep(0.05)


async def test_a_worker_that_is_killed_is_replaced_and_nothing_it_counted_is_lost(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        first = process_of(await served.said("worker 1 serves"))
        await served.ask(6)
        before = await served.scrape()
        os.kill(first, signal.SIGKILL)
        await served.said("worker 1 was killed by signal 9")
        await served.ask(6)  # those for the lost worker wait for the next one
        again = await served.said("worker 1 serves", after=served.lines.index(await served.said("killed by")))
        assert process_of(again) != first
        after = await served.scrape()
        assert before["draftlane_requests_total"] == 6
        assert after["draftlane_requests_total"] == 12
        await until_learnt(served, 12)
        assert await stopped(served) == 0


async def test_a_stop_lets_answers_finish_on_every_worker(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def waits(visit: Visit) -> None:
        await visit.send(head(SSE + CHUNKED) + chunk(EVENTS[0]))
        await go.wait()
        await visit.send(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)

    async with serving(tmp_path, waits) as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served.port)) for _ in range(6)]
        answers = []
        for client in clients:
            await client.send(post(CHAT_STREAM))
            answers.append(await client.head())
        served.process.send_signal(signal.SIGTERM)
        await served.said("stopping")
        go.set()
        for client, one in zip(clients, answers, strict=True):
            assert (await client.body(one)).body.endswith(b"data: [DONE]\n\n")
        assert await served.process.wait() == 0


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async def never_ends(visit: Visit) -> None:
        await visit.send(head(SSE + CHUNKED) + chunk(EVENTS[0]))
        await visit.until_gone()

    async with serving(tmp_path, never_ends) as served, connected(served.port) as client:
        await client.send(post(CHAT_STREAM))
        await client.head()
        served.process.send_signal(signal.SIGINT)
        await served.said("stopping")
        assert await stopped(served, signal.SIGINT) == 0


async def test_when_the_parent_is_lost_its_workers_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        workers = [process_of(await served.said(f"worker {number} serves")) for number in (1, 2)]
        served.process.kill()
        await served.process.wait()
        await until(lambda: not any(map(alive, workers)))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_port_that_is_taken_is_said_and_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = configuration(tmp_path, "http://127.0.0.1:9", port=taken.getsockname()[1])
        async with started(file) as served:
            assert "in use" in await served.said("cannot listen")
            assert await served.process.wait() == 1
