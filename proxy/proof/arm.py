"""One side of a comparison: an engine's URL, how to ask it, and what each request gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

import httpx

from proxy.discovery import get, root
from proxy.engines import ENGINES
from proxy.engines.base import Scrape
from proxy.proof.answer import Acceptance, Answer, Read, read_answer
from proxy.proof.prompts import Prompt

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
PLAIN = "plain"
SPECULATIVE = "speculative"


@dataclass(frozen=True)
class Arm:
    """How one arm is asked."""

    name: str
    url: str
    """Base with or without ``/v1``."""
    model: str
    surface: str = "chat"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)
    """Fields every request carries: temperature, max_tokens, and what the operator adds."""
    engine: str = "unknown"
    timeout_seconds: float = 300.0

    def request(self, prompt: Prompt) -> dict[str, object]:
        """The JSON body for a prompt; usage is always asked for, since chunks are not tokens."""
        asked: dict[str, object] = {
            "model": self.model,
            **({"messages": [{"role": "user", "content": prompt.text}]} if self.surface == "chat" else {}),
            **({"prompt": prompt.text} if self.surface == "completions" else {}),
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"return_spec_tokens_details": True} if self.engine == "sglang" else {}),
        }
        return {**asked, **self.body}


class Place(NamedTuple):
    """Where in the run a request stood."""

    load: str
    order: int
    """Running number over all arms, in the order of sending."""
    block: int


class Sample(NamedTuple):
    """One request on one arm. Times in seconds; None is "not told", and a failure has only ``error``."""

    arm: str
    prompt: str
    kind: str
    place: Place
    started_at: float
    latency_seconds: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    events: int = 0
    acceptance: Acceptance | None = None
    finish_reason: str | None = None
    text: str = ""
    error: str | None = None

    @property
    def ok(self) -> bool:
        """It was answered to the end."""
        return self.error is None and self.latency_seconds is not None


class Client:
    """Asks one arm. Use as an async context manager."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self._http = httpx.AsyncClient(
            headers=dict(arm.headers),
            timeout=httpx.Timeout(arm.timeout_seconds, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    async def ask(self, prompt: Prompt, place: Place, **changes: object) -> Sample:
        """Send one prompt and wait for the whole answer; a failure is a Sample with its ``error``."""
        body = {**self.arm.request(prompt), **changes}
        started = monotonic()
        reads: list[Read] = []
        sample = Sample(self.arm.name, prompt.id, prompt.kind, place, started)
        try:
            async with self._http.stream(
                "POST", root(self.arm.url) + "/v1" + PATHS[self.arm.surface], json=body
            ) as response:
                await _receive(response, reads)
        except httpx.HTTPError as error:
            return sample._replace(error=f"{type(error).__name__}: {error}")
        if response.status_code != 200:
            said = b"".join(data for _, data in reads)[:300].decode(errors="replace")
            return sample._replace(error=f"HTTP {response.status_code}: {said}")
        return completed(sample, read_answer(reads))

    async def scrape(self) -> Scrape | None:
        """The engine's counters now; None when its ``/metrics`` page cannot be read."""
        engine = ENGINES[self.arm.engine]
        page = await get(self._http, root(self.arm.url) + engine.metrics_path, self.arm.headers, 10.0)
        return engine.read_metrics(page.body) if page.status == 200 else None


async def _receive(response: httpx.Response, reads: list[Read]) -> None:
    async for data in response.aiter_bytes():
        reads += [(monotonic(), data)]  # kept as it comes: a failure in mid-answer leaves what was read


def completed(sample: Sample, answer: Answer) -> Sample:
    """Turn a read answer into figures. TPOT = (last token − first token) ÷ (completion tokens of usage − 1)."""
    first, last, facts = answer.first_token_at, answer.last_token_at, answer.facts
    if facts.error is not None or first is None or last is None:
        return sample._replace(error=facts.error or "an answer without text")
    tokens = facts.completion_tokens
    return sample._replace(
        latency_seconds=last - sample.started_at,
        ttft_seconds=first - sample.started_at,
        tpot_seconds=(last - first) / (tokens - 1) if tokens is not None and tokens > 1 and last > first else None,
        prompt_tokens=facts.prompt_tokens,
        cached_tokens=facts.cached_tokens,
        completion_tokens=tokens,
        events=facts.events,
        acceptance=answer.acceptance,
        finish_reason=facts.finish_reason,
        text=answer.text,
    )
