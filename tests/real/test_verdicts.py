"""On real engines: speculation is found to pay for copied code and not for fresh prose, and traffic follows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import pytest

from policies.gain import DOES_NOT_PAY, PAYS, UNKNOWN
from policies.settings import VerdictSettings
from proxy.checkup.fresh import words
from proxy.config import Config, from_urls
from proxy.llama import MODEL, LlamaEngine
from proxy.serving import serving
from proxy.showing import Showing

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("real-llamacpp")]

FEWEST = 5
MOST = 30
"""Requests of an application at most; on a quiet machine a dozen are enough for a verdict."""
FOLLOWING = 8
"""Requests after the verdict, to see where they go; every second one may be a probe of the other lane."""


def configured(speculative: str, plain: str) -> Config:
    """Verdicts after a handful of requests instead of after a day's worth; everything else as it comes."""
    config = from_urls([speculative], [plain], {"port": 0})
    verdict = VerdictSettings(min_requests=FEWEST, memory_requests=40, probe_requests=1, dwell_seconds=1.0)
    policy = replace(config.policy, cold_requests=2, verdict=verdict)
    drafter, other = config.backends
    n_gram = drafter.model_copy(update={"drafts_always": False})
    return config.model_copy(update={"policy": policy, "backends": (n_gram, other)})


def an_edit(draw: Random) -> str:
    """A file nobody saw before, to be written again with one name changed."""
    kind, first, *others = (word.title() for word in words(draw, 6))
    code = f"class {kind}:\n    def __init__(self, owner):\n        self.owner = owner\n        self.{first.lower()} = []\n"
    for name in (first, *others):
        low = name.lower()
        code += f"\n    def add_{low}(self, {low}, count=1):\n        if count < 1:\n"
        code += f'            raise ValueError("{low} must be positive")\n        self.{first.lower()}.append(({low}, count))\n'
    return f"The file a.py:\n```python\n{code}```\n\nThe file a.py with the class renamed:\n```python\n"


def a_letter(draw: Random) -> str:
    """Prose that nothing in the prompt foretells."""
    who, where, what = words(draw, 3)
    return f"A letter to {who.title()} about {where.title()} and its {what}.\n\nDear {who.title()},\n"


class Client:
    """Sends both applications' requests and remembers the lanes."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self.http = http
        self.url = url
        self.lanes: dict[str, list[str]] = {"editor": [], "writer": []}

    async def ask(self, app: str, prompt: str, temperature: float, tokens: int) -> None:
        """One streamed answer."""
        body: dict[str, Any] = {
            "model": MODEL,
            "stream": True,
            "max_tokens": tokens,
            "temperature": temperature,
            "messages": [{"role": "user", "content": prompt}],
        }
        headers = {"x-draftlane-app": app}
        async with self.http.stream("POST", f"{self.url}/v1/chat/completions", json=body, headers=headers) as answer:
            await answer.aread()
        assert answer.status_code == 200
        self.lanes[app].append(answer.headers["x-draftlane-lane"])


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=180) as client:
        yield client


def verdicts(showing: Showing) -> dict[str, dict[str, Any]]:
    """The verdict of each application's one class."""
    return {one["application"]: one for one in showing.snapshot()["verdicts"]}


async def until_it_pays(client: Client, showing: Showing, draw: Random) -> dict[str, dict[str, Any]]:
    """Both applications in turns, until the evidence for the editor suffices; the verdicts."""
    for _ in range(MOST):
        await client.ask("editor", an_edit(draw), 0.0, 160)
        await client.ask("writer", a_letter(draw), 1.0, 24)
        if verdicts(showing).get("editor", {}).get("verdict") == PAYS:
            break
    return verdicts(showing)


async def test_copied_code_pays_and_stays_on_the_speculative_lane_and_fresh_prose_does_not_pay(
    plain_engine: LlamaEngine, speculative_engine: LlamaEngine, http: httpx.AsyncClient
) -> None:
    """The engines take turns and have both cores; who fills the machine with other work fails this test."""
    draw = Random(20261129)
    async with serving(configured(speculative_engine.url, plain_engine.url)) as (app, ports, _):
        client = Client(http, f"http://127.0.0.1:{ports.public}")
        found = await until_it_pays(client, app.showing, draw)
        assert found["editor"]["verdict"] == PAYS, found
        assert found["editor"]["lower"] > 1.0
        assert found["writer"]["verdict"] in (DOES_NOT_PAY, UNKNOWN), found
        drafter = next(one for one in app.showing.snapshot()["backends"] if one["lane"] == "speculative")
        steps = {name.split("|")[1]: told["tokens_per_step"] for name, told in drafter["acceptance_by_class"].items()}
        assert steps["editor"] > 3.0
        assert steps["writer"] < 1.3
        client.lanes["editor"].clear()
        for _ in range(FOLLOWING):
            await client.ask("editor", an_edit(draw), 0.0, 160)
        lanes = client.lanes["editor"]
        assert lanes.count("speculative") > lanes.count("plain"), app.showing.snapshot()["backends"]
