"""What a real llama.cpp says and does, with and without speculation."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies.events import Event, Joined, Scraped
from proxy.discovery import discover
from proxy.engines import ENGINES
from proxy.engines.base import Scrape
from proxy.llama import MODEL, EngineUnavailable, LlamaEngine, Tuning, missing, start
from proxy.scrape import Watch, Watched

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.xdist_group("real-llamacpp")]

FILE = '''class Shelf:
    """Where things are kept."""

    def __init__(self, owner):
        self.owner = owner
        self.things = []

    def put(self, thing, count=1):
        if count < 1:
            raise ValueError("count must be positive")
        self.things.append((thing, count))

    def count(self):
        amount = 0
        for thing, count in self.things:
            amount = amount + count
        return amount
'''
EDIT = f"The file shelf.py:\n```python\n{FILE}```\n\nThe file shelf.py with the class renamed to Rack:\n```python\n"


def ask(engine: LlamaEngine, prompt: str, tokens: int, **more: object) -> dict[str, Any]:
    """One chat answer, whole."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, **more}
    answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def scrape(engine: LlamaEngine) -> Scrape:
    """Its metrics page, read."""
    return ENGINES["llamacpp"].read_metrics(httpx.get(f"{engine.url}/metrics", timeout=30).text)


async def test_discovery_tells_the_two_apart(plain_engine: LlamaEngine, speculative_engine: LlamaEngine) -> None:
    async with httpx.AsyncClient() as client:
        plain, speculative = [await discover(client, engine.url) for engine in (plain_engine, speculative_engine)]
    assert (plain.engine, speculative.engine) == ("llamacpp", "llamacpp")
    assert (plain.speculative, speculative.speculative) == (False, True)
    for found in (plain, speculative):
        assert (found.models, found.max_context_tokens, found.max_requests, found.metrics) == ((MODEL,), 4096, 2, True)


def test_copied_code_is_drafted_and_accepted_and_the_counters_agree_with_the_answer(
    speculative_engine: LlamaEngine,
) -> None:
    before = scrape(speculative_engine)
    answer = ask(speculative_engine, EDIT, 160, temperature=0)
    after = scrape(speculative_engine)
    timings = answer["timings"]
    assert timings["draft_n_accepted"] > 0.5 * answer["usage"]["completion_tokens"]
    assert "def put(self" in answer["choices"][0]["message"]["content"]
    assert after.draft_tokens is not None
    assert before.draft_tokens is not None
    assert after.accepted_tokens is not None
    assert before.accepted_tokens is not None
    assert after.draft_tokens - before.draft_tokens == timings["draft_n"]
    assert after.accepted_tokens - before.accepted_tokens == timings["draft_n_accepted"]
    assert sum(after.accepted_per_position) == after.accepted_tokens


def test_the_plain_engine_answers_alike_and_drafts_nothing(plain_engine: LlamaEngine) -> None:
    answer = ask(plain_engine, EDIT, 60, temperature=0)
    assert "draft_n" not in answer["timings"]
    assert scrape(plain_engine).drafts == 0


def test_fresh_sampled_prose_gains_next_to_nothing(speculative_engine: LlamaEngine) -> None:
    answer = ask(
        speculative_engine, "A letter about the first warm day of the year.\n\nDear Anna,\n", 60, temperature=1, seed=5
    )
    assert answer["timings"].get("draft_n_accepted", 0) <= 0.2 * answer["usage"]["completion_tokens"]


def test_a_stream_starts_with_a_null_role_chunk_and_ends_with_usage_timings_and_done(
    speculative_engine: LlamaEngine,
) -> None:
    body = {
        "messages": [{"role": "user", "content": EDIT}],
        "max_tokens": 40,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with httpx.stream("POST", f"{speculative_engine.url}/v1/chat/completions", json=body, timeout=120) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert chunks[-1]["choices"] == []
    contents = [chunk for chunk in chunks[1:-1] if chunk["choices"][0]["delta"].get("content")]
    assert len(contents) == chunks[-1]["usage"]["completion_tokens"] == chunks[-1]["timings"]["predicted_n"]


async def test_the_watch_introduces_a_real_engine_and_reads_its_load(plain_engine: LlamaEngine) -> None:
    heard: list[Event] = []
    ask(plain_engine, "One, two,", 2, temperature=0)
    async with httpx.AsyncClient() as client:
        await Watch(client, [Watched("p", plain_engine.url, "plain")], heard.append, lambda: 1.0).look()
    introduction, load = heard[0], heard[-1]
    assert isinstance(introduction, Joined)
    assert (introduction.engine, introduction.depth, introduction.max_requests) == ("llamacpp", 0, 2)
    assert isinstance(load, Scraped)
    assert (load.running, load.waiting) == (0, 0)
    assert load.generated_tokens is not None
    assert load.generated_tokens >= 2


def test_an_engine_that_cannot_start_says_so_and_leaves_no_process() -> None:
    if (lack := missing()) is not None:
        pytest.skip(lack)
    with pytest.raises(EngineUnavailable, match="did not start"):
        start(Tuning("plain"), weights_file=Path("/nonexistent.gguf"), patience_seconds=60)
