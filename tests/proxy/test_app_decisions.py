"""A whole gateway before simulated lanes: where requests go, and how everybody is told why."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from policies.events import Refused
from proxy.simulated.running import simulated
from tests.live.lanes import MODEL, PLAIN, SPECULATIVE, Live, both_lanes, configured, engines, gateway, two
from tests.scripted.backend import ScriptedBackend, free_port
from tests.scripted.scripts import answer as scripted_answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPS = {"rag": {"lane": "plain", "expected_output_tokens": 33}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live() -> AsyncIterator[Live]:
    """Two lanes; one application has settings."""
    async with both_lanes(apps=APPS, log={"level": "error"}) as found:
        yield found


def reason(answer: httpx.Response) -> tuple[str, str]:
    """(lane, why) from the response headers."""
    assert answer.status_code == 200, answer.text
    return answer.headers["x-draftlane-lane"], answer.headers["x-draftlane-reason"]


@contextlib.asynccontextmanager
async def one_lane(lane: str) -> AsyncIterator[Live]:
    """A gateway before one engine."""
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(simulated(SPECULATIVE if lane == "speculative" else PLAIN))
        one = {"name": "one", "url": url, "lane": lane}
        yield await stack.enter_async_context(gateway(configured({"backends": [one]})))


# -- lane rules


@pytest.mark.parametrize(("field", "value"), [("min_p", 0.05), ("logit_bias", {"100": 5})])
async def test_what_speculating_engines_refuse_goes_to_the_plain_lane(live: Live, field: str, value: Any) -> None:
    for stream in (False, True):
        assert reason(await live.chat(stream=stream, **{field: value})) == ("plain", f"lane-rule:{field}")


@pytest.mark.parametrize(("field", "value"), [("min_p", 0), ("min_p", None), ("logit_bias", {}), ("logit_bias", None)])
async def test_an_empty_wish_is_no_wish(live: Live, field: str, value: Any) -> None:
    assert not reason(await live.chat(**{field: value}))[1].startswith("lane-rule")


async def test_a_rule_of_the_operators_own_holds_as_well() -> None:
    async with both_lanes(policy={"lane_rules": {"json_object": "plain"}}) as live:
        answer = await live.chat(response_format={"type": "json_object"})
        assert reason(answer) == ("plain", "lane-rule:json_object")


async def test_a_rule_gives_way_when_only_the_other_lane_is_there() -> None:
    """The engine's own refusal is a better answer than none."""
    async with engines() as (speculative, _):
        backends = [{"name": "speculative", "url": speculative, "lane": "speculative"}]
        async with gateway(configured({"backends": backends})) as live:
            answer = await live.chat(min_p=0.05)
            assert (answer.status_code, answer.headers["x-draftlane-lane"]) == (400, "speculative")
            assert "not yet supported with speculative decoding" in answer.text


NO_RULES = {"policy": {"lane_rules": {}, "name": "all-speculative"}}


async def test_a_refused_feature_is_asked_of_the_other_lane_once_and_remembered() -> None:
    async with engines() as (speculative, plain):
        backends = two(speculative, plain, {"refuses": []})
        async with gateway(configured({"backends": backends, **NO_RULES})) as live:
            refusals: list[Refused] = []
            live.app.gateway.listeners.append(
                lambda said: refusals.extend(event for event in said if isinstance(event, Refused))
            )
            assert reason(await live.chat(min_p=0.05))[0] == "plain"
            assert [(one.backend, one.feature) for one in refusals] == [("speculative", "min_p")]
            assert live.outcomes[-1].outcome == "ok"
            assert reason(await live.chat(min_p=0.05)) == ("plain", "lane-rule:min_p")
            assert len(refusals) == 1, "remembered: not asked again"
            assert reason(await live.chat())[0] == "speculative", "others are not affected"
            told = {one["name"]: one for one in (await live.state())["backends"]}
            assert told["speculative"]["refuses"] == ["min_p"]


async def test_a_400_that_is_the_clients_own_is_not_retried() -> None:
    async with both_lanes(policy={"name": "all-speculative"}) as live:
        answer = await live.chat(temperature=-1)
        assert (answer.status_code, answer.headers["x-draftlane-lane"]) == (400, "speculative")
        assert "temperature" in answer.text
        assert (live.outcomes[-1].outcome, live.outcomes[-1].retries) == ("client_error", 0)


async def test_a_feature_refused_by_both_lanes_is_the_backends_answer() -> None:
    words = b'{"error":{"message":"min_p is not supported with speculative decoding","code":400}}'
    refusing = scripted_answer(words, b"400 Bad Request")
    async with ScriptedBackend(refusing).listening() as first, ScriptedBackend(refusing).listening() as second:
        backends = two(first.url, second.url, {"refuses": [], "models": [MODEL], "engine": "vllm"})
        async with gateway(configured({"backends": backends, **NO_RULES})) as live:
            answer = await live.chat(min_p=0.05)
            assert (answer.status_code, answer.content) == (400, words)
            assert [len([one for one in lane.requests if one.method == "POST"]) for lane in (first, second)] == [1, 1]


# -- what clients and operators may say


async def test_a_client_may_force_a_lane(live: Live) -> None:
    for lane in ("speculative", "plain"):
        assert reason(await live.chat(headers={"x-draftlane-lane": lane})) == (lane, "forced")


async def test_a_forced_lane_that_refuses_is_no_dead_end(live: Live) -> None:
    """The header goes before the rule, so the engine is asked; what it refuses because it speculates goes elsewhere."""
    answer = await live.chat(headers={"x-draftlane-lane": "speculative"}, logit_bias={"1": 1})
    assert reason(answer)[0] == "plain"
    assert live.outcomes[-1].retries == 1


async def test_a_forced_lane_that_is_not_there_is_no_obstacle() -> None:
    async with one_lane("plain") as live:
        assert reason(await live.chat(headers={"x-draftlane-lane": "speculative"}))[0] == "plain"


async def test_an_announced_length_is_what_is_predicted(live: Live) -> None:
    await live.chat(headers={"x-draftlane-expected-output-tokens": "5"}, max_tokens=300)
    assert (live.outcomes[-1].predicted_tokens, live.outcomes[-1].output_from) == (5, "client")


async def test_settings_of_an_application_hold_for_its_requests(live: Live) -> None:
    assert reason(await live.chat(headers={"x-draftlane-app": "rag"}, max_tokens=300)) == ("plain", "forced")
    assert (live.outcomes[-1].app, live.outcomes[-1].predicted_tokens) == ("rag", 33)


async def test_headers_for_the_gateway_go_no_further() -> None:
    async with ScriptedBackend(scripted_answer()).listening() as backend:
        one = {"name": "p", "url": backend.url, "lane": "plain", "models": [MODEL], "engine": "vllm"}
        async with gateway(configured({"backends": [one]})) as live:
            await live.chat(headers={"x-draftlane-lane": "plain", "x-draftlane-app": "a", "x-other": "b"})
            (sent,) = [one for one in backend.requests if one.method == "POST"]
            assert [name for name, _ in sent.headers if name.startswith("x-draftlane")] == []
            assert sent.header("x-other") == "b"


# -- who is told


async def test_every_answer_says_where_it_came_from(live: Live) -> None:
    for stream in (False, True):
        answer = await live.chat(stream=stream, headers={"x-request-id": f"mine-{stream}"})
        assert answer.headers["x-request-id"] == f"mine-{stream}"
        assert answer.headers["x-draftlane-lane"] == answer.headers["x-draftlane-backend"]
        assert answer.headers["x-draftlane-class"] in ("decode-heavy", "prompt-heavy")


async def test_a_line_per_decision_is_json_with_everything_that_led_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    async with both_lanes() as live:
        first = await live.chat(headers={"x-draftlane-app": "letters", "x-draftlane-lane": "speculative"}, stream=True)
        second = await live.chat(headers={"x-draftlane-app": "letters"}, temperature=-1)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = {one["id"]: one for one in lines if one["event"] == "request"}
    assert set(told) == {first.headers["x-request-id"], second.headers["x-request-id"]}
    ok, bad = told[first.headers["x-request-id"]], told[second.headers["x-request-id"]]
    assert (ok["lane"], ok["reason"], ok["policy"], ok["app"]) == ("speculative", "forced", "break-even", "letters")
    assert (ok["status"], ok["outcome"], ok["completion_tokens"], ok["stream"]) == (200, "ok", 8, True)
    assert {"ratio", "class", "predicted_tokens", "output_from", "input_tokens", "ttft_seconds", "tpot_seconds"} <= set(
        ok
    )
    assert ok["draft_tokens"] >= ok["accepted_tokens"] > 0
    assert (bad["status"], bad["outcome"], bad["level"]) == (400, "client_error", "info")


async def test_decisions_stay_unsaid_where_configured(capsys: pytest.CaptureFixture[str]) -> None:
    async with both_lanes(log={"decisions": False}) as live:
        await live.chat()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [one for one in lines if one["event"] == "request"] == []


# -- one lane, no lane


@pytest.mark.parametrize("lane", ["speculative", "plain"])
async def test_one_backend_is_enough_to_start(lane: str) -> None:
    async with one_lane(lane) as live:
        for _ in range(3):
            assert reason(await live.chat(stream=True)) == (lane, "only-backend")
        (told,) = (await live.state())["backends"]
        assert (told["name"], told["finished"]) == ("one", 3)
        assert (live.outcomes[-1].draft_tokens is not None) == (lane == "speculative")


async def test_a_model_of_one_lane_only_is_served_there() -> None:
    async with both_lanes(plain=replace(PLAIN, model="other-model")) as live:
        assert reason(await live.chat(model="other-model")) == ("plain", "only-backend")
        assert reason(await live.chat(model=MODEL)) == ("speculative", "only-backend")
        unknown = await live.chat(model="nobody's")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_endpoints_without_tokens_are_passed_on(live: Live) -> None:
    answer = await live.public.post("/v1/embeddings", json={"model": MODEL, "input": ["a", "b"]})
    assert (answer.status_code, len(answer.json()["data"])) == (200, 2)
    answer = await live.public.post("/tokenize", json={"model": MODEL, "prompt": "a b c"})
    assert answer.status_code == 200


async def test_a_configured_path_is_passed_on_with_query_and_method() -> None:
    async with both_lanes(extra_paths=["/version", "/v1/engine/*"]) as live:
        answer = await live.public.get("/version", params={"a": "1"})
        assert (answer.status_code, "simulated" in answer.text) == (200, True)
        assert (await live.public.get("/v1/engine/nothing")).status_code == 404, "the engine's own answer"
        assert (await live.public.get("/load")).json()["error"]["code"] == "unknown_url", "not configured"


async def test_when_nobody_can_be_reached_the_client_is_told_when_to_come_back() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with gateway(configured({"backends": two(nobody, nobody)})) as live:
        answer = await live.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_unreachable")
        assert nobody.removeprefix("http://") not in answer.text
        assert (live.outcomes[-1].outcome, live.outcomes[-1].retries) == ("backend_error", 1)
