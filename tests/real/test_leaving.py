"""A client that leaves a real engine's answer frees the engine, streaming or not."""

import asyncio
import json
import time

import httpx
import pytest

from proxy.config import from_urls
from proxy.engines import ENGINES
from proxy.llama import MODEL, LlamaEngine
from proxy.serving import serving
from tests.scripted.clock import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.xdist_group("real-llamacpp")]

PATIENCE_SECONDS = 30.0
"""A crowded machine is slow to look; an engine that was not told would go on for minutes."""


async def running(http: httpx.AsyncClient, engine: LlamaEngine) -> int:
    """Requests the engine is working on."""
    page = (await http.get(f"{engine.url}/metrics")).text
    return ENGINES["llamacpp"].read_metrics(page).running or 0


async def until_running(http: httpx.AsyncClient, engine: LlamaEngine, wanted: int) -> float:
    """Seconds until the engine's gauge says so."""
    began = time.monotonic()
    while await running(http, engine) != wanted:
        assert time.monotonic() - began < PATIENCE_SECONDS
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def leave(engine: LlamaEngine, http: httpx.AsyncClient, stream: bool, tokens: int) -> None:
    """Ask through a gateway, wait until the engine works on it, leave, and see the gateway let go."""
    async with serving(from_urls([], [engine.url], {"port": 0})) as (app, ports, _):
        body = {
            "model": MODEL,
            "stream": stream,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": "Once"}],
        }
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.public)
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await until_running(http, engine, 1)
        if stream:
            assert await reader.readuntil(b"data: ")
        writer.close()
        await until(lambda: not app.gateway.live)
        assert app.gateway.fleet.backends["plain-1"].own_in_flight == 0


async def test_the_engine_stops_when_the_reader_of_a_stream_leaves(plain_engine: LlamaEngine) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        await leave(plain_engine, http, stream=True, tokens=2000)
        await until_running(http, plain_engine, 0)


async def test_an_answer_that_does_not_stream_is_let_go_at_once_though_this_engine_goes_on(
    plain_engine: LlamaEngine,
) -> None:
    """llama.cpp looks for a closed connection only when it writes: asked directly, without a gateway, it generated all
    2,000 tokens for nobody (measured). Our end of the connection is closed all the same, and the count is released."""
    async with httpx.AsyncClient(timeout=60) as http:
        await leave(plain_engine, http, stream=False, tokens=48)
        await until_running(http, plain_engine, 0)
