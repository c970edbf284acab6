"""Keys and prompts: where they may be seen, and everywhere they may not."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from proxy.simulated.running import simulated
from tests.live.lanes import ADMIN, ADMIN_KEY, MODEL, PLAIN, Live, configured, digest, gateway, two
from tests.scripted.backend import ScriptedBackend
from tests.scripted.scripts import answer, stream, then_close

KEY = "sk-live-4815162342"
WRONG = "sk-wrong-9000"
ENGINE_KEY = "sk-engine-31337"
TEAM_HEADER = "header-secret-271828"
PROMPT = "the-merger-is-on-tuesday"
SECRETS = (KEY, WRONG, ENGINE_KEY, TEAM_HEADER, PROMPT, ADMIN_KEY)


def body(streamed: bool) -> dict[str, object]:
    said = {"role": "user", "content": PROMPT}
    return {"model": MODEL, "stream": streamed, "messages": [said], "user": PROMPT, "max_tokens": 5}


async def some_of_everything(live: Live) -> list[httpx.Response]:
    """Requests that go well, are refused, break, or make no sense, with right and wrong keys in every place."""
    ways = [
        {"authorization": f"Bearer {KEY}"},
        {"x-api-key": KEY},
        {"authorization": f"Bearer {WRONG}"},
        {"x-api-key": WRONG},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {KEY}", "x-draftlane-app": "letters", "user-agent": "tool/1"},
    ]
    answers = []
    for headers in ways:
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/nothing"):
            answers.append(await live.public.post(path, json=body(False), headers=headers))
            answers.append(await live.public.post(path, json=body(True), headers=headers))
        answers.append(await live.public.get("/v1/models", headers=headers))
        answers.append(await live.public.post("/v1/chat/completions", content=f'{{"a": "{PROMPT}', headers=headers))
        answers.append(await live.admin.get("/admin/state", headers=headers))
    answers += [await live.admin.get(f"/admin/{page}", headers=ADMIN) for page in ("state", "backends", "alarms")]
    answers.append(await live.admin.post("/admin/explain", json=body(False), headers=ADMIN))
    answers.append(await live.admin.get("/dashboard"))
    answers.append(await live.public.get("/metrics"))
    return answers


@pytest.mark.parametrize("broken", [False, True])
async def test_no_key_and_no_prompt_is_in_any_record_or_answer(
    broken: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = [then_close(b"HTTP/1.1 200 OK\r\n")] if broken else [answer(), stream()]
    async with ScriptedBackend(*scripts).listening() as first, ScriptedBackend(*scripts).listening() as second:
        own = {"models": [MODEL], "api_key": ENGINE_KEY, "headers": {"x-team": TEAM_HEADER}}
        config = configured(
            {
                "backends": two(first.url, second.url, own, own),
                "keys": {"sha256": {"team-a": digest(KEY)}},
                "journal": {"path": "journal.jsonl"},
                "log": {"level": "debug"},
            },
            tmp_path,
        )
        async with gateway(config) as live:
            answers = await some_of_everything(live)
        asked = [one for lane in (first, second) for one in lane.requests if one.method == "POST"]
    assert {answer.status_code for answer in answers} >= {200, 400, 401, 404}
    assert any(answer.status_code == 502 for answer in answers) is broken
    heads = "".join(f"{name}: {value}\n" for request in asked for name, value in request.headers)
    assert f"authorization: Bearer {ENGINE_KEY}" in heads
    assert f"x-team: {TEAM_HEADER}" in heads
    assert not any(secret in heads for secret in (KEY, WRONG, ADMIN_KEY)), "the client's key is none of the engine's"
    journal = (tmp_path / "journal.jsonl").read_text()
    assert '"team-a"' in journal
    records = {
        "journal": journal,
        "log": capsys.readouterr().err,
        "answers": "".join(f"{answer.headers} {answer.text}" for answer in answers),
        "settings": f"{config!r} {live.app!r} {live.app.gateway.keys!r}",
    }
    assert [(name, secret) for name, text in records.items() for secret in SECRETS if secret in text] == []


async def test_the_clients_key_reaches_the_engine_only_where_configured() -> None:
    async with ScriptedBackend(answer()).listening() as backend:
        backends = [{"name": "p", "url": backend.url, "lane": "plain", "models": [MODEL]}]
        keys = {"sha256": {"team-a": digest(KEY)}}
        async with gateway(configured({"backends": backends, "keys": keys, "forward_client_key": True})) as live:
            await live.chat(headers={"authorization": f"Bearer {KEY}"})
        (asked,) = [one for one in backend.requests if one.method == "POST"]
        assert asked.header("authorization") == f"Bearer {KEY}"


async def test_an_engine_with_a_key_of_its_own_is_discovered_watched_and_asked_with_it() -> None:
    async with simulated(replace(PLAIN, key=ENGINE_KEY)) as url:
        backends = [{"name": "p", "url": url, "lane": "plain", "api_key": ENGINE_KEY}]
        async with gateway(configured({"backends": backends})) as live:
            assert (await live.chat()).status_code == 200
            assert [card["id"] for card in (await live.public.get("/v1/models")).json()["data"]] == [MODEL]
