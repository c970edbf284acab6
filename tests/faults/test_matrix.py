"""Every cell of the fault matrix, streaming and not, with one backend and with two, on both server forms."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator

import pytest

from policies.breaker import CLOSED, OPEN
from proxy.errors import FAULT_KINDS, KINDS
from tests.faults.matrix import (
    CELLS,
    CONNECT,
    CONNECT_SECONDS,
    END,
    FIRST,
    FIRST_BYTE_SECONDS,
    IDLE_SECONDS,
    MIDDLE,
    SEND,
    Cell,
    said,
)
from tests.faults.page import PAGE, page, unmet
from tests.scripted.backend import ScriptedBackend, free_port
from tests.scripted.certificates import Certificate, certificate
from tests.scripted.client import CHAT, CHAT_STREAM, Answer, Client, connected, post
from tests.scripted.clock import until
from tests.scripted.rig import Rig, config_for, running
from tests.scripted.scripts import answer, stream

LARGE = 6_000_000
"""Request bytes that no pair of socket buffers holds."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate that the gateway is told to trust."""
    return certificate(tmp_path_factory.mktemp("tls"))


def body_of(cell: Cell, streaming: bool) -> bytes:
    body = CHAT_STREAM if streaming else CHAT
    return body.replace(b'"hi"', b'"%b"' % (b"x" * LARGE)) if cell.phase == SEND else body


@contextlib.asynccontextmanager
async def failing(
    cell: Cell, streaming: bool, known: Certificate
) -> AsyncIterator[tuple[ScriptedBackend, dict[str, object]]]:
    """The backend that fails, and its settings."""
    if cell.play is None:
        backend = ScriptedBackend()
        host = "127.0.0.1" if cell.failure == "refused" else "no..such..name"
        yield backend, {"url": f"http://{host}:{free_port()}"}
        return
    script = cell.play(streaming)
    greeting = script if cell.greets else None
    tls: ssl.SSLContext | None = known.for_server() if cell.tls else None
    async with ScriptedBackend(script, early=cell.early, greeting=greeting).listening(tls) as backend:
        settings: dict[str, object] = {"url": backend.url}
        if cell.greets or cell.tls:
            settings["url"] = f"https://127.0.0.1:{backend.port}"
        if cell.tls and cell.phase != CONNECT:  # there, the failure is that nobody vouches for the certificate
            settings["tls_ca_file"] = str(known.cert)
        yield backend, settings


async def reached(cell: Cell, rig: Rig, client: Client, bad: ScriptedBackend) -> Answer | None:
    """Wait until the gateway is in the phase in which the backend stalls; the answer's beginning if there is one."""
    await until(lambda: bad.visits if cell.greets else bad.heads == 1)
    relay = next(iter(rig.gateway.live))
    if cell.phase in (FIRST, MIDDLE, END):
        await until(lambda: relay.status == 200)
    if cell.unseen:
        return None
    await until(lambda: relay.inbound.started)
    return await client.head()


async def played(cell: Cell, rig: Rig, client: Client, bad: ScriptedBackend, request: bytes) -> Answer:
    await client.send(request)
    if cell.patience is None:
        return await client.answer()
    begun = await reached(cell, rig, client, bad)
    rig.later(cell.patience - 1)
    assert rig.faults == [] or rig.faults[0][1] == "stalled"
    rig.later(2)
    return await (client.answer() if begun is None else client.body(begun))


def blamed(cell: Cell, rig: Rig, name: str) -> None:
    """The fault was noted once; the breaker counts it, and nothing else."""
    faults = [] if cell.fault is None else [(name, cell.fault)]
    if cell.patience is not None and cell.unseen and rig.faults and rig.faults[0][1] == "stalled":
        faults = [(name, "stalled")]  # the watchdog, which needs another backend, is quicker than patience
    assert rig.faults == faults
    breaker = rig.gateway.fleet.backends[name].breaker
    assert breaker.failures == sum(fault != "stalled" for _, fault in faults)
    assert breaker.state == (OPEN if (name, "stalled") in faults else CLOSED)


def shown(cell: Cell, got: Answer, streaming: bool) -> None:
    """A failure after the first byte: the client has what came, once, and can tell that it is not all."""
    text = said(streaming).text
    assert got.status == 200
    assert not got.complete
    partial, _, told = got.body.partition(b'\n\ndata: {"error":')
    assert text.startswith(partial.removesuffix(b"\n\n").removesuffix(b"data: {"))
    assert partial.count(b"one") <= 1
    if streaming:
        error = json.loads(b'{"error":' + told)["error"]
        assert error["code"] == KINDS[FAULT_KINDS[str(cell.fault)][0]].code
    if cell.phase == MIDDLE:
        assert b"[DONE]" not in got.body


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
async def test_with_another_backend(cell: Cell, streaming: bool, form: str, known: Certificate) -> None:
    good = ScriptedBackend(stream() if streaming else answer())
    async with failing(cell, streaming, known) as (bad, settings), good.listening():
        config = config_for({"spec": str(settings.pop("url")), "plain": good.url}, spec=settings, timeouts=TIMEOUTS)
        async with running(config, form) as rig, connected(rig.port) as client:
            got = await played(cell, rig, client, bad, post(body_of(cell, streaming)))
            if cell.unseen or cell.fault is None:
                assert (got.status, got.body, got.complete) == (200, said(streaming).text, True)
            else:
                shown(cell, got, streaming)
            moved = cell.fault is not None and cell.unseen
            assert len(good.requests) == moved
            assert [request.body for request in good.requests] == [body_of(cell, streaming)] * moved
            assert bad.heads == cell.heads
            await rig.at_rest()
            blamed(cell, rig, "spec")


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
async def test_alone(cell: Cell, streaming: bool, form: str, known: Certificate) -> None:
    async with failing(cell, streaming, known) as (bad, settings):
        config = config_for({"plain": str(settings.pop("url"))}, plain=settings, timeouts=TIMEOUTS)
        async with running(config, form) as rig, connected(rig.port) as client:
            got = await played(cell, rig, client, bad, post(body_of(cell, streaming)))
            if cell.fault is None:
                assert (got.status, got.body, got.complete) == (200, said(streaming).text, True)
            elif cell.unseen:
                kind = KINDS[FAULT_KINDS[cell.fault][0]]
                assert (got.status, got.error()["code"], got.complete) == (kind.status, kind.code, True)
            else:
                shown(cell, got, streaming)
            assert bad.heads == cell.heads
            await rig.at_rest()
            blamed(cell, rig, "plain")


TIMEOUTS = {
    "connect_seconds": CONNECT_SECONDS,
    "first_byte_seconds": FIRST_BYTE_SECONDS,
    "idle_seconds": IDLE_SECONDS,
}


def test_every_phase_meets_every_failure_or_the_page_says_why_not() -> None:
    assert unmet() == []


def test_the_page_is_that_of_this_matrix() -> None:
    """Otherwise: ``python -m tests.faults.page``."""
    assert PAGE.read_text(encoding="utf-8") == page()
