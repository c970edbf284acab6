"""Asks a backend what the checks want to know. All of it is ordinary traffic: nothing is changed on the engine."""

import asyncio
import json
import time
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import httpx

from proxy.checkup.facts import HangUp, Lane, Probe, Refusal
from proxy.checkup.fresh import REVEALING, predictable, question
from proxy.discovery import BackendUnreachableError, discover, get, root
from proxy.engines import ENGINES
from proxy.engines.base import Discovered, Scrape
from proxy.engines.habits import field, text, whole

PROBE_TOKENS, ANSWER_TOKENS, QUESTIONS = 128, 48, 3
HANG_UP_SECONDS = 5.0
"""How long an engine may take to notice that a client left before it counts as deaf."""
SETTLE_SECONDS = 1.0
"""llama.cpp moves its counters only when a request ends, and vLLM with its next log interval."""
FEATURES: dict[str, dict[str, Any]] = {
    "min_p": {"min_p": 0.1},
    "logit_bias": {"logit_bias": {"5": -1}},
    "logprobs": {"logprobs": True},
    "n": {"n": 2, "temperature": 0.7},
    "stop": {"stop": ["\n\n\n\n"]},
    "json_object": {"response_format": {"type": "json_object"}},
}
"""What a speculating engine might refuse, as the fields that ask for it."""


class Visit(NamedTuple):
    """One backend under examination."""

    client: httpx.AsyncClient
    url: str
    headers: Mapping[str, str]
    model: str
    found: Discovered
    seconds: float

    async def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response | None:
        """The answer, or None when none came."""
        try:
            async with asyncio.timeout(self.seconds):
                return await self.client.post(root(self.url) + path, json=body, headers=dict(self.headers))
        except (TimeoutError, httpx.HTTPError):
            return None

    async def json(self, path: str, body: Mapping[str, Any]) -> object:
        """The JSON of a successful answer, else None."""
        answer = await self.post(path, body)
        if answer is None or answer.status_code != 200:
            return None
        try:
            return answer.json()
        except ValueError:
            return None

    async def scrape(self) -> Scrape | None:
        """The metrics page, understood; None when there is none."""
        engine = ENGINES[self.found.engine]
        page = await get(self.client, root(self.url) + engine.metrics_path, self.headers, self.seconds)
        return engine.read_metrics(page.body) if page.status == 200 and self.found.metrics else None


async def visit(
    client: httpx.AsyncClient,
    lane: Lane,
    headers: Mapping[str, str],
    draw: Random,
    questions: tuple[str, ...],
    seconds: float = 60.0,
) -> Lane:
    """Everything about one backend; what fails is left out, a dead backend says why."""
    try:
        found = await discover(client, lane.url, headers)
    except BackendUnreachableError as error:
        return lane._replace(fault=error.cause)
    model = lane.model or (found.models[0] if found.models else "default")
    at = Visit(client, lane.url, headers, model, found, seconds)
    dressed, counted = await chat_as_written(at)
    return lane._replace(
        model=model,
        found=found,
        cut=await cut_texts(at),
        dressed=dressed,
        chat_tokens=counted,
        answers=await answers(at, questions),
        again=await answers(at, questions),
        probe=await probe(at, draw),
        refusals={name: await try_feature(at, name, draw) for name in FEATURES},
        hang_up=await hang_up(at, draw),
    )


async def cut_texts(at: Visit) -> dict[str, tuple[int, ...]]:
    """The revealing texts as token ids, where the server has ``/tokenize``."""
    found = {}
    for name, sample in REVEALING.items():
        if (ids := await tokenize(at, sample)) is not None:
            found[name] = ids
    return found


async def tokenize(at: Visit, sample: str) -> tuple[int, ...] | None:
    """Token ids of a text without special tokens; None where the server does not tell."""
    llama = {"content": sample, "add_special": False}
    vllm = {"model": at.model, "prompt": sample, "add_special_tokens": False}
    for body in (llama, vllm) if at.found.engine == "llamacpp" else (vllm, llama):
        ids = field(await at.json("/tokenize", body), "tokens")
        if isinstance(ids, list) and ids and all(isinstance(number, int) for number in ids):
            return tuple(ids)
    return None


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": "Teal."},
    {"role": "user", "content": "Another."},
]


async def chat_as_written(at: Visit) -> tuple[tuple[int, ...] | str | None, int | None]:
    """What the template makes of a short chat, and how many prompt tokens the engine counts for it."""
    asked = {"model": at.model, "messages": CHAT, "max_tokens": 1, "temperature": 0}
    counted = whole(field(await at.json("/v1/chat/completions", asked), "usage", "prompt_tokens"))
    if at.found.engine == "llamacpp":
        return text(field(await at.json("/apply-template", {"messages": CHAT}), "prompt")), counted
    ids = field(await at.json("/tokenize", {"model": at.model, "messages": CHAT}), "tokens")
    return (tuple(ids) if isinstance(ids, list) else None), counted


async def answers(at: Visit, questions: tuple[str, ...]) -> tuple[str, ...]:
    """Short answers at temperature 0; an empty tuple when one did not come."""
    said = []
    for asked in questions:
        body = {"model": at.model, "prompt": asked, "max_tokens": ANSWER_TOKENS, "temperature": 0, "seed": 1}
        words = field(await at.json("/v1/completions", body), "choices", 0, "text")
        if not isinstance(words, str):
            return ()
        said.append(words)
    return tuple(said)


async def probe(at: Visit, draw: Random) -> Probe:
    """One stream of fresh, predictable text, with the counters before and after it."""
    before = await at.scrape()
    body = {
        "model": at.model,
        "prompt": predictable(draw),
        "max_tokens": PROBE_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    events, fault = await stream(at, body)
    await asyncio.sleep(SETTLE_SECONDS)
    return understand(events, fault)._replace(before=before, after=await at.scrape())


async def stream(at: Visit, body: Mapping[str, Any]) -> tuple[list[object], str]:
    """The JSON of every event, and what went wrong."""
    events: list[object] = []
    try:
        async with asyncio.timeout(at.seconds), opened(at, body) as answer:
            if answer.status_code != 200:
                return events, f"status {answer.status_code}"
            async for line in answer.aiter_lines():
                events += [json.loads(line[5:])] if line.startswith("data:") and "[DONE]" not in line else []
    except (TimeoutError, httpx.HTTPError, ValueError) as error:
        return events, str(error) or type(error).__name__
    return events, ""


def opened(at: Visit, body: Mapping[str, Any]) -> Any:
    """A streamed completion, to be entered."""
    url = root(at.url) + "/v1/completions"
    return at.client.stream("POST", url, json=body, headers=dict(at.headers))


def understand(events: list[object], fault: str) -> Probe:
    """Counts of a stream, and the engine's own word on drafts in its last events."""
    completion, draft, accepted, tells = None, None, None, False
    for event in events:
        completion = whole(field(event, "usage", "completion_tokens")) or completion
        drafting, timings = field(event, "metrics", "speculative_decoding"), field(event, "timings")
        if isinstance(drafting, dict):
            draft, accepted = drafting.get("num_draft_tokens"), drafting.get("num_accepted_draft_tokens")
        elif isinstance(timings, dict):
            draft, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        tells = tells or isinstance(drafting, dict) or isinstance(timings, dict)
    bearing = sum(1 for event in events if field(event, "choices", 0, "text"))
    return Probe(None, None, completion, bearing, draft, accepted, tells, fault)


async def try_feature(at: Visit, name: str, draw: Random) -> Refusal:
    """One short request with the feature in it."""
    message = {"role": "user", "content": question(draw) + " Answer in JSON."}
    body = {"model": at.model, "messages": [message], "max_tokens": 2, "temperature": 0, **FEATURES[name]}
    answer = await at.post("/v1/chat/completions", body)
    if answer is None:
        return Refusal(None, False, "no answer")
    refused = ENGINES[at.found.engine].refused_feature(answer.status_code, answer.content, (name,))
    said = "" if answer.status_code == 200 else str(field(_json(answer), "error", "message") or answer.text)[:200]
    return Refusal(answer.status_code, refused is not None, said)


def _json(answer: httpx.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


async def hang_up(at: Visit, draw: Random) -> HangUp:
    """Leaves a long stream after its first bytes and watches the running gauge."""
    idle = await at.scrape()
    if idle is None or idle.running is None:
        return HangUp(fault="no gauge of running requests to watch")
    body = {"model": at.model, "prompt": predictable(draw), "max_tokens": 4096, "stream": True, "ignore_eos": True}
    try:
        async with asyncio.timeout(at.seconds), opened(at, body) as answer:
            if answer.status_code != 200:
                return HangUp(fault=f"status {answer.status_code}")
            async for _ in answer.aiter_raw():
                break
            during = await at.scrape()
    except (TimeoutError, httpx.HTTPError) as error:
        return HangUp(fault=str(error) or type(error).__name__)
    running = during.running if during else None
    if running is None or running <= idle.running:
        return HangUp(running, fault="the request had ended before it could be left, or other traffic ended meanwhile")
    return HangUp(running, await noticed(at, running, HANG_UP_SECONDS))


async def noticed(at: Visit, during: int, patience_seconds: float) -> float | None:
    """Seconds until fewer requests run; None when patience runs out."""
    left_at = time.monotonic()
    while (passed := time.monotonic() - left_at) < patience_seconds:
        now = await at.scrape()
        if now is not None and now.running is not None and now.running < during:
            return passed
        await asyncio.sleep(0.1)
    return None


def questions_for(draw: Random) -> tuple[str, ...]:
    """Fresh questions, the same for every lane of one examination."""
    return tuple(question(draw) for _ in range(QUESTIONS))
