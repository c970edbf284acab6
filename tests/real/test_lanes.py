"""A gateway before two real llama.cpp engines: routed, measured, explained, and nothing changed on the way."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from proxy.cli import app as command_line
from proxy.llama import MODEL, LlamaEngine
from tests.live.lanes import Live, configured, gateway, two
from tests.scripted.clock import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("real-llamacpp"),
    pytest.mark.asyncio(loop_scope="module"),
]

CODE = '''def add(left, right):
    """The sum of two numbers."""
    return left + right


def subtract(left, right):
    """The difference of two numbers."""
    return left - right
'''
COPY = f"The file sums.py:\n```python\n{CODE}```\n\nThe file sums.py once more:\n```python\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the gateway below writes."""
    return tmp_path_factory.mktemp("real") / "journal.jsonl"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(speculative_engine: LlamaEngine, plain_engine: LlamaEngine, journal: Path) -> AsyncIterator[Live]:
    """The gateway."""
    said = {
        "backends": two(speculative_engine.url, plain_engine.url),
        "journal": {"path": str(journal)},
        "log": {"level": "error", "decisions": False},
    }
    async with gateway(configured(said)) as found:
        yield found


def asked(prompt: str = COPY, tokens: int = 40, **more: Any) -> dict[str, Any]:
    """A request that the engine answers the same way every time: from its cache it rounds differently."""
    said = [{"role": "user", "content": prompt}]
    fixed = {"temperature": 0, "seed": 7, "cache_prompt": False}
    return {"model": MODEL, "messages": said, "max_tokens": tokens, **fixed, **more}


def events_of(stream: str) -> list[dict[str, Any]]:
    """The JSON events of a stream, its end checked."""
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(events: list[dict[str, Any]]) -> str:
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def test_both_engines_are_found_out_by_themselves(live: Live) -> None:
    told = {one["name"]: one for one in (await live.state())["backends"]}
    assert {name: (one["engine"], one["models"]) for name, one in told.items()} == {
        "speculative": ("llamacpp", [MODEL]),
        "plain": ("llamacpp", [MODEL]),
    }
    (card,) = (await live.public.get("/v1/models")).json()["data"]
    assert card["id"] == MODEL


@pytest.mark.parametrize("lane", ["speculative", "plain"])
async def test_an_answer_is_what_the_engine_itself_says(
    live: Live, lane: str, speculative_engine: LlamaEngine, plain_engine: LlamaEngine
) -> None:
    engine = speculative_engine if lane == "speculative" else plain_engine
    through = await live.public.post("/v1/chat/completions", json=asked(), headers={"x-draftlane-lane": lane})
    async with httpx.AsyncClient(timeout=120) as client:
        direct = await client.post(f"{engine.url}/v1/chat/completions", json=asked())
    assert (through.status_code, through.headers["x-draftlane-lane"]) == (200, lane)
    assert through.json()["choices"] == direct.json()["choices"]
    assert set(through.json()) == set(direct.json())
    assert through.headers["content-type"] == direct.headers["content-type"]


@pytest.mark.parametrize("lane", ["speculative", "plain"])
async def test_a_stream_keeps_its_shape_and_the_gateway_its_count(live: Live, lane: str) -> None:
    headers = {"x-draftlane-lane": lane}
    bare = await live.public.post("/v1/chat/completions", json=asked(stream=True), headers=headers)
    counted = asked(stream=True, stream_options={"include_usage": True})
    told = await live.public.post("/v1/chat/completions", json=counted, headers=headers)
    events, with_usage = events_of(bare.text), events_of(told.text)
    assert text_of(events) == text_of(with_usage)
    assert all(event["choices"] for event in events), "who did not ask for usage gets no event without choices"
    usage = with_usage[-1]["usage"]
    for outcome in live.outcomes[-2:]:
        assert (outcome.completion_tokens, outcome.prompt_tokens) == (
            usage["completion_tokens"],
            usage["prompt_tokens"],
        )
        assert outcome.ttft_seconds is not None
        assert outcome.tpot_seconds is not None


async def test_acceptance_is_the_engines_own_figure(live: Live) -> None:
    answer = await live.public.post(
        "/v1/chat/completions", json=asked(tokens=60), headers={"x-draftlane-lane": "speculative"}
    )
    timings, told = answer.json()["timings"], live.outcomes[-1]
    assert (told.draft_tokens, told.accepted_tokens) == (timings["draft_n"], timings["draft_n_accepted"])
    assert told.accepted_tokens is not None
    assert told.accepted_tokens > 20, "copied code is what n-grams foresee"
    await live.public.post("/v1/chat/completions", json=asked(tokens=20), headers={"x-draftlane-lane": "plain"})
    assert not live.outcomes[-1].draft_tokens


async def test_the_openai_sdk_works_through_it(live: Live) -> None:
    url = f"http://127.0.0.1:{live.ports.public}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0, timeout=120) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        whole = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": COPY}], max_tokens=30, temperature=0
        )
        assert "def add" in (whole.choices[0].message.content or "")
        chunks = await client.completions.create(
            model=MODEL, prompt="One, two,", max_tokens=8, temperature=0, stream=True
        )
        assert "three" in "".join([chunk.choices[0].text async for chunk in chunks])
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model=MODEL, messages=[], max_tokens=-5, temperature=0)


async def running(engine: LlamaEngine) -> int:
    """Requests that the engine works on, by its own gauge."""
    async with httpx.AsyncClient(timeout=30) as client:
        page = (await client.get(f"{engine.url}/metrics")).text
    return int(next(line.split()[1] for line in page.splitlines() if line.startswith("llamacpp:requests_processing ")))


async def until_running(engine: LlamaEngine, requests: int) -> None:
    """Wait until the engine says so."""
    now = await running(engine)
    while now != requests:
        await asyncio.sleep(0.01)
        now = await running(engine)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine(live: Live, plain_engine: LlamaEngine, stream: bool) -> None:
    # This engine goes on with an answer that does not stream, whoever leaves (tests/real/test_leaving.py): a short one.
    body = asked("Count: 1, 2, 3,", tokens=3000 if stream else 200, stream=stream, ignore_eos=True)
    headers = {"x-draftlane-lane": "plain"}
    task = asyncio.create_task(live.public.post("/v1/chat/completions", json=body, headers=headers))
    await until_running(plain_engine, 1)
    before = len(live.outcomes)
    task.cancel()
    await until(lambda: len(live.outcomes) > before)
    assert live.outcomes[-1].outcome == "cancelled"
    await until_running(plain_engine, 0)
    assert live.app.gateway.live == set()


async def test_what_the_day_decided_can_be_replayed_and_explained(live: Live, journal: Path) -> None:
    """The last test of this module: it reads what the others left."""
    answer = await live.public.post("/v1/chat/completions", json=asked(tokens=5))
    name = answer.headers["x-request-id"]
    await until(lambda: journal.exists() and journal.read_text().count(f'"{name}"') >= 4)
    again = CliRunner().invoke(command_line, ["replay", str(journal), "--json"])
    told = json.loads(again.output)
    assert (again.exit_code, told["different"], told["doubts"]) == (0, [], [])
    assert told["written"] >= 8
    why = CliRunner().invoke(command_line, ["explain", str(journal), name])
    assert f"It was sent to {answer.headers['x-draftlane-backend']}." in why.output
