"""TLS on either side, Unix sockets, and a gateway that ends while it works."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.scripted.backend import ScriptedBackend, Visit, free_port
from tests.scripted.certificates import Certificate, certificate
from tests.scripted.client import CHAT, CHAT_STREAM, Answer, connected, get, post
from tests.scripted.clock import until
from tests.scripted.rig import config_for, running
from tests.scripted.scripts import ANSWER, CHUNKED, EVENTS, LAST_CHUNK, SSE, STREAM, answer, chunk, head, stream


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """One certificate for all."""
    return certificate(tmp_path_factory.mktemp("tls"))


async def test_tls_on_both_sides(form: str, known: Certificate) -> None:
    server = {"tls_cert_file": str(known.cert), "tls_key_file": str(known.key), "forwarded": "append"}
    async with ScriptedBackend(stream(), answer()).listening(known.for_server()) as backend:
        url = f"https://localhost:{backend.port}"
        config = config_for({"plain": url}, server, plain={"tls_ca_file": str(known.cert)})
        async with running(config, form) as rig:
            async with connected(rig.port, known.for_client()) as client:
                assert (await client.ask(post(CHAT_STREAM))).body == STREAM
                assert (await client.ask(post(CHAT))).body == ANSWER
            assert backend.requests[0].header("x-forwarded-proto") == "https"
            assert len(backend.visits) == 1
            await rig.at_rest()


async def test_a_unix_socket(form: str, tmp_path: Path) -> None:
    backend = ScriptedBackend(answer())
    async with (
        backend.listening(path=tmp_path / "engine.sock"),
        running(config_for({"plain": backend.url}), form) as rig,
    ):
        async with connected(rig.port) as client:
            assert (await client.ask(post(CHAT))).body == ANSWER
        assert backend.requests[0].header("host") == "localhost"
        await rig.at_rest()


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/engine", "/engine/v1"])
async def test_base_urls(base: str) -> None:
    async with ScriptedBackend(answer()).listening() as backend:
        async with running(config_for({"plain": backend.url + base}), "fast") as rig, connected(rig.port) as client:
            assert (await client.ask(post(CHAT))).body == ANSWER
        prefix = base.rstrip("/").removesuffix("/v1")
        assert backend.requests[0].target == prefix + "/v1/chat/completions"


class Held:
    """A backend whose stream waits for the test, and which answers everything else at once."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.streaming = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        if b'"stream":true' not in visit.request.body:
            await answer(b'{"object":"list","data":[{"id":"m","object":"model"}]}')(visit)
            return
        await visit.send(head(SSE + CHUNKED) + chunk(EVENTS[0]))
        self.streaming.set()
        await self.go_on.wait()
        await visit.send(chunk(EVENTS[1]) + LAST_CHUNK)


@asynccontextmanager
async def gateway(
    folder: Path, backend: str, grace_seconds: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """``draftlane serve`` as its users run it; its process and its two ports."""
    public, admin = free_port(), free_port()
    (folder / "gateway.toml").write_text(
        f"[server]\nport = {public}\nadmin_port = {admin}\ngrace_seconds = {grace_seconds}\n"
        f'[journal]\npath = "{folder / "journal"}"\n'
        f'[[backends]]\nname = "plain"\nlane = "plain"\nurl = "{backend}"\nmodels = ["m"]\nengine = "sglang"\n'
    )
    command = [sys.executable, "-m", "proxy", "serve", "-c", str(folder / "gateway.toml")]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        while not _accepts(public) or not _accepts(admin):
            assert process.returncode is None, await _said(process)
            await asyncio.sleep(0.05)
        yield process, public, admin
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _said(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None
    return await process.stderr.read()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def ready(port: int) -> Answer:
    async with connected(port) as client:
        return await client.ask(get("/ready"), "GET")


async def test_after_sigterm_running_streams_finish_and_nothing_new_comes_in(tmp_path: Path) -> None:
    held = Held()
    async with (
        ScriptedBackend(held).listening() as backend,
        gateway(tmp_path, backend.url, 60) as (process, port, admin),
    ):
        async with connected(port) as client, connected(port) as idle:
            assert (await idle.ask(get("/health"), "GET")).status == 200
            assert (await ready(admin)).status == 200
            await client.send(post(CHAT_STREAM))
            got = await client.head()
            await client.until(got, EVENTS[0])
            process.send_signal(signal.SIGTERM)
            assert await idle.closed()
            await until(lambda: not _accepts(port))
            told = await ready(admin)
            assert (told.status, told.json()["ready"]) == (503, False)
            assert process.returncode is None
            held.go_on.set()
            await client.body(got)
            assert (got.body, got.complete) == (EVENTS[0] + EVENTS[1], True)
            assert await client.closed()
        assert await process.wait() == 0
        assert b"Traceback" not in await _said(process)
        assert _journalled(tmp_path) >= {"Arrived", "Dispatched", "Finished"}


def _journalled(folder: Path) -> set[str]:
    lines = [line for file in folder.glob("journal*") for line in file.read_text().splitlines()]
    return {name for name in ("Arrived", "Dispatched", "Finished", "Cancelled") if any(name in line for line in lines)}


async def test_when_the_grace_period_ends_the_rest_is_cut_visibly(tmp_path: Path) -> None:
    async with ScriptedBackend(Held()).listening() as backend, gateway(tmp_path, backend.url, 1) as (process, port, _):
        async with connected(port) as client:
            await client.send(post(CHAT_STREAM))
            got = await client.head()
            await client.until(got, EVENTS[0])
            process.send_signal(signal.SIGTERM)
            await client.body(got)
            assert not got.complete
            event = got.body.removeprefix(EVENTS[0]).strip().removeprefix(b"data: ")
            assert json.loads(event)["error"]["code"] == "shutting_down"
        assert await process.wait() == 0
        assert _journalled(tmp_path) >= {"Arrived", "Dispatched", "Cancelled"}


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with (
        ScriptedBackend(Held()).listening() as backend,
        gateway(tmp_path, backend.url, 600) as (process, port, _),
    ):
        async with connected(port) as client:
            await client.send(post(CHAT_STREAM))
            got = await client.head()
            await client.until(got, EVENTS[0])
            process.send_signal(signal.SIGTERM)
            await until(lambda: not _accepts(port))
            process.send_signal(signal.SIGINT)
            await client.body(got)
            assert not got.complete
        assert await process.wait() == 0
