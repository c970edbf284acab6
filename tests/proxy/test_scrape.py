"""Backends come, speak, fall silent and come back as something else: what the watch reports of it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from policies.events import Event, Joined, Probed, Scraped
from proxy.engines.base import Discovered
from proxy.scrape import Pace, Watch, Watched, joined


def _page(generated: float, drafts: float | None, running: int = 0) -> str:
    lines = [f'vllm:num_requests_running{{engine="0"}} {running}', f"vllm:generation_tokens_total {generated}"]
    if drafts is not None:
        lines += [f"vllm:spec_decode_num_drafts_total {drafts}"]
        lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{p}"}} {drafts}' for p in range(3)]
    return "\n".join(lines) + "\n"


class Backend:
    """A backend whose pages are set by the test; it can be taken away and brought back at the same address."""

    def __init__(self) -> None:
        self.model, self.page, self.health = "m", _page(0, 0), 200
        self.port = 0
        self.asked: list[str] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._speak, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        self.asked.append(path)
        card = {"id": self.model, "owned_by": "vllm", "max_model_len": 4096}
        pages = {"/health": "", "/metrics": self.page, "/v1/models": json.dumps({"data": [card]})}
        status = self.health if path == "/health" else 200 if path in pages else 404
        body = pages.get(path, "")
        writer.write(
            f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        writer.close()


@asynccontextmanager
async def watching(
    watched: Watched | None = None, pace: Pace | None = None
) -> AsyncIterator[tuple[Backend, Watch, list[Event]]]:
    backend, heard, ticks = Backend(), list[Event](), itertools.count(1)
    await backend.start()
    target = (watched or Watched("a", "", "speculative"))._replace(url=f"http://127.0.0.1:{backend.port}")
    async with httpx.AsyncClient() as client:
        yield (
            backend,
            Watch(client, [target], heard.append, lambda: float(next(ticks)), pace or Pace(every_seconds=0.01)),
            heard,
        )
    await backend.stop()


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ + (" away" if isinstance(event, Probed) and not event.ok else "") for event in events]


async def test_a_first_look_introduces_the_backend_before_it_reports_its_load() -> None:
    async with watching() as (backend, watch, heard):
        backend.page = _page(generated=50, drafts=7, running=2)
        await watch.look()
    assert kinds(heard) == ["Joined", "Probed", "Scraped"]
    introduction, _, load = heard
    assert isinstance(introduction, Joined)
    assert isinstance(load, Scraped)
    assert introduction._replace(at=0) == Joined(
        at=0,
        backend="a",
        lane="speculative",
        models=("m",),
        engine="vllm",
        depth=3,
        max_context_tokens=4096,
        refuses=("logit_bias", "min_p"),
        one_event_per_step=True,
    )
    assert (load.running, load.drafts, load.accepted_per_position, load.generated_tokens) == (
        2,
        7.0,
        (7.0, 7.0, 7.0),
        50.0,
    )
    assert watch.discovered["a"].models == ("m",)


async def test_a_backend_is_asked_what_it_is_once_and_its_metrics_every_round() -> None:
    async with watching() as (backend, watch, heard):
        for _ in range(3):
            await watch.look()
    assert kinds(heard) == ["Joined", "Probed", "Scraped", "Probed", "Scraped", "Probed", "Scraped"]
    assert backend.asked.count("/v1/models") == 1
    assert not any("completions" in path for path in backend.asked)


async def test_a_backend_that_comes_back_with_another_model_is_introduced_again() -> None:
    async with watching() as (backend, watch, heard):
        await watch.look()
        await backend.stop()
        await watch.look()
        await watch.look()
        backend.model, backend.page = "m2", _page(generated=0, drafts=None)
        await backend.start()
        await watch.look()
    assert kinds(heard[3:]) == ["Probed away", "Probed away", "Joined", "Probed", "Scraped"]
    again = heard[5]
    assert isinstance(again, Joined)
    assert (again.models, again.depth) == (("m2",), None)


async def test_a_backend_that_is_not_there_yet_is_introduced_when_it_comes() -> None:
    async with watching() as (backend, watch, heard):
        await backend.stop()
        await watch.look()
        assert watch.discovered == {}
        await backend.start()
        await watch.look()
    assert kinds(heard) == ["Probed away", "Joined", "Probed", "Scraped"]


async def test_a_loading_backend_is_away() -> None:
    async with watching() as (backend, watch, heard):
        backend.health = 503
        await watch.look()
        backend.health = 404  # a server without /health lives
        await watch.look()
    assert kinds(heard) == ["Probed away", "Joined", "Probed", "Scraped"]


async def test_counters_that_fall_mean_a_restart_and_are_not_believed_before_it_is_asked_anew() -> None:
    async with watching() as (backend, watch, heard):
        backend.page = _page(generated=900, drafts=100)
        await watch.look()
        backend.page = _page(generated=3, drafts=None)
        await watch.look()
        await watch.look()
    assert kinds(heard[3:]) == ["Probed", "Joined", "Scraped", "Probed", "Scraped"]
    plain = heard[4]
    assert isinstance(plain, Joined)
    assert plain.depth is None


async def test_a_model_loaded_while_it_runs_is_noticed_after_a_while_and_no_change_is_no_event() -> None:
    async with watching(pace=Pace(every_seconds=0.01, afresh_seconds=0)) as (backend, watch, heard):
        await watch.look()
        await watch.look()
        backend.model = "m+adapter"
        await watch.look()
    assert kinds(heard) == ["Joined", "Probed", "Scraped", "Probed", "Scraped", "Joined", "Probed", "Scraped"]


async def test_pauses_grow_while_a_backend_is_away_and_shrink_when_it_is_back() -> None:
    async with watching(pace=Pace(every_seconds=2, away_seconds=15)) as (backend, watch, _):
        target = watch.backends[0]
        await backend.stop()
        pauses = [watch.pause_seconds(target)]
        for _ in range(5):
            await watch.look()
            pauses.append(watch.pause_seconds(target))
        assert pauses == [2, 4, 8, 15, 15, 15]
        await backend.start()
        await watch.look()
        assert watch.pause_seconds(target) == 2


async def test_running_goes_round_until_it_is_cancelled() -> None:
    async with watching() as (_, watch, heard):
        thrice = asyncio.Event()

        def hear(event: Event) -> None:
            heard.append(event)
            if kinds(heard).count("Scraped") == 3:
                thrice.set()

        watch.observe = hear
        running = asyncio.create_task(watch.run())
        await thrice.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert kinds(heard)[:3] == ["Joined", "Probed", "Scraped"]


async def test_a_very_long_page_is_read_as_well() -> None:
    async with watching() as (backend, watch, heard):
        backend.page = "# padding\n" * 40_000 + _page(generated=5, drafts=1)
        await watch.look()
    load = heard[-1]
    assert isinstance(load, Scraped)
    assert load.generated_tokens == 5.0


def test_what_the_operator_configured_wins_over_what_the_backend_says() -> None:
    said = Discovered("vllm", ("m",), True, depth=5, max_context_tokens=2048, max_requests=4, drafts_always=True)
    told = Watched(
        "a",
        "",
        "speculative",
        models=("n",),
        engine="sglang",
        depth=3,
        max_context_tokens=99,
        max_requests=1,
        refuses=("tools",),
        drafts_always=False,
    )
    assert joined(told, said, 7.0) == Joined(
        7.0, "a", "speculative", ("n",), "sglang", 3, 99, 1, ("tools",), False, True
    )


def test_a_plain_backend_drafts_nothing_and_refuses_nothing_by_default() -> None:
    event = joined(Watched("b", "", "plain"), Discovered("vllm", ("m",), False), 1.0)
    assert (event.depth, event.refuses) == (0, ())


def test_a_pace_that_would_spin_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Pace(every_seconds=0)
