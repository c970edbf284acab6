"""The control plane: health, models, metrics, admin, and the answers for what is not there."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from proxy.control import BODY_BYTES
from tests.live.lanes import (
    ADMIN,
    MODEL,
    PLAIN,
    SPECULATIVE,
    Live,
    both_lanes,
    configured,
    digest,
    engines,
    gateway,
    two,
)
from tests.scripted.backend import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-the-key-of-team-a"
KEYS = {"sha256": {"team-a": digest(KEY)}}
BEARER = {"authorization": f"Bearer {KEY}"}
BODY = {"model": MODEL, "max_tokens": 400, "messages": [{"role": "user", "content": "Write a long letter."}]}


PAGE = "https://chat.example"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live() -> AsyncIterator[Live]:
    """A gateway that asks for no key."""
    names = [{"name": MODEL, "aliases": ["Qwen/Qwen3-32B"]}]
    async with both_lanes(models=names, apps={"rag": {"lane": "plain"}}, log={"level": "error"}) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked() -> AsyncIterator[Live]:
    """A gateway that asks for one, and lets one page in."""
    names = [{"name": MODEL, "aliases": ["gpt-4o"]}]
    async with both_lanes(models=names, server={"cors_origins": [PAGE]}, log={"level": "error"}, keys=KEYS) as found:
        yield found


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The OpenAI error object, checked for its shape."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert isinstance(error, dict)
    return error


# -- health


async def test_health_and_readiness_need_no_key_and_answer_head_too(locked: Live) -> None:
    for client in (locked.public, locked.admin):
        alive = await client.get("/health")
        assert (alive.status_code, alive.json()["status"]) == (200, "ok")
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "detail": "2 of 2 backends"})
        for path in ("/health", "/ready", "/metrics"):
            bare = await client.head(path)
            assert (bare.status_code, bare.content) == (200, b""), path


async def test_not_ready_while_shutting_down_though_alive() -> None:
    async with both_lanes() as live:
        live.app.showing.draining = True
        ready = await live.public.get("/ready")
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "detail": "shutting down"})
        assert (await live.public.get("/health")).status_code == 200


async def test_not_ready_when_every_backend_rests() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    config = configured({"backends": two(nobody, nobody), "policy": {"breaker": {"failures_to_open": 1}}})
    async with gateway(config) as live:
        await live.chat()
        ready = await live.public.get("/ready")
        assert (ready.status_code, ready.json()["detail"]) == (503, "no backend is up")


# -- metrics


async def test_metrics_come_in_the_format_asked_for_and_count_what_happened(live: Live) -> None:
    await live.chat(headers={"x-draftlane-lane": "plain"})
    text = await live.public.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain")
    requests = [line for line in text.text.splitlines() if line.startswith("draftlane_requests_total{")]
    assert any('lane="plain"' in line and line.endswith(" 1.0") for line in requests)
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    modern = await live.public.get("/metrics", headers=accept)
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


# -- models


async def test_models_are_merged_and_need_the_clients_key(locked: Live) -> None:
    for path in ("/v1/models", "/models"):
        assert error_of(await locked.public.get(path))["code"] == "invalid_api_key"
        listed = await locked.public.get(path, headers=BEARER)
        assert listed.json()["object"] == "list"
        cards = {card["id"]: card for card in listed.json()["data"]}
        assert set(cards) == {MODEL, "gpt-4o"}
        assert cards["gpt-4o"]["max_model_len"] == cards[MODEL]["max_model_len"] == PLAIN.context_tokens
    one = await locked.public.get(f"/v1/models/{MODEL}", headers=BEARER)
    assert one.json() == cards[MODEL]
    missing = await locked.public.get("/v1/models/nothing", headers=BEARER)
    assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")
    bare = await locked.public.head("/v1/models", headers=BEARER)
    assert (bare.status_code, bare.content) == (200, b"")


async def test_models_whose_names_hold_slashes_can_be_asked_for_one_by_one(live: Live) -> None:
    for path in ("/v1/models/Qwen/Qwen3-32B", "/v1/models/Qwen%2FQwen3-32B", "/models/Qwen/Qwen3-32B/"):
        assert (await live.public.get(path)).json()["id"] == "Qwen/Qwen3-32B"


async def test_the_list_lives_on_with_one_backend_down() -> None:
    async with engines() as (speculative, _):
        nobody = f"http://127.0.0.1:{free_port()}"
        async with gateway(configured({"backends": two(speculative, nobody)})) as live:
            listed = await live.public.get("/v1/models")
            assert [card["id"] for card in listed.json()["data"]] == [MODEL]


# -- what is not there


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
async def test_a_surface_asked_with_the_wrong_method_says_which_is_right(locked: Live, method: str) -> None:
    for path in ("/v1/chat/completions", "/chat/completions", "/v1/messages/"):
        answer = await locked.public.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
        if method != "HEAD":
            assert error_of(answer)["code"] == "method_not_allowed"


async def test_paths_of_the_control_plane_name_their_methods_too(live: Live) -> None:
    for path in ("/v1/models", "/health", "/metrics"):
        answer = await live.public.post(path, json={})
        assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/nothing",
        "/v1/chat/completions/more",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/admin",
        "/favicon.ico",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_is_not_served_is_an_error_object_and_no_redirect(live: Live, method: str, path: str) -> None:
    answer = await live.public.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_url")


# -- other origins' pages


async def test_a_preflight_needs_no_key_and_allows_what_was_asked(locked: Live) -> None:
    asked = {
        "origin": "https://chat.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os",
    }
    for path in ("/v1/chat/completions", "/v1/models", "/v1/responses"):
        answer = await locked.public.options(path, headers=asked)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        assert answer.headers["access-control-allow-headers"] == asked["access-control-request-headers"]
        assert "POST" in answer.headers["access-control-allow-methods"]


async def test_other_origins_are_allowed_nothing(locked: Live) -> None:
    evil = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await locked.public.options("/v1/chat/completions", headers=evil)
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    for answer in (await locked.chat(headers=evil), await locked.public.get("/v1/models", headers=evil)):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_answers_and_errors_can_be_read_by_an_allowed_page(locked: Live) -> None:
    page = {"origin": "https://chat.example"}
    answers = [
        await locked.chat(headers={**page, **BEARER}),
        await locked.chat(headers=page),
        await locked.public.get("/v1/models", headers=page),
        await locked.public.get("/v1/models", headers={**page, **BEARER}),
        await locked.public.get("/v1/chat/completions", headers=page),
        await locked.public.get("/nothing", headers=page),
    ]
    assert [answer.status_code for answer in answers] == [200, 401, 401, 200, 405, 404]
    assert {answer.headers.get("access-control-allow-origin") for answer in answers} == {"https://chat.example"}
    assert "x-draftlane-lane" in answers[0].headers["access-control-expose-headers"]


# -- the operators' side


@pytest.mark.parametrize("path", ["/admin/state", "/admin/backends", "/admin/verdicts", "/admin/alarms"])
async def test_admin_pages_need_the_admin_key_and_are_not_on_the_public_port(locked: Live, path: str) -> None:
    assert (await locked.public.get(path, headers=ADMIN)).status_code == 404
    for headers in ({}, BEARER, {"authorization": "Basic x"}, {"x-api-key": "wrong"}):
        answer = await locked.admin.get(path, headers=headers)
        assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
    for headers in (ADMIN, {"authorization": ADMIN["authorization"].replace("Bearer", "bearer")},
                    {"x-api-key": ADMIN["authorization"].removeprefix("Bearer ")}):  # fmt: skip
        assert (await locked.admin.get(path, headers=headers)).status_code == 200


async def test_the_admin_key_opens_no_surface(locked: Live) -> None:
    assert (await locked.chat(headers=ADMIN)).status_code == 401


async def test_without_an_admin_key_nobody_gets_in() -> None:
    async with engines() as (speculative, plain):
        config = configured({"backends": two(speculative, plain)})
        config = config.model_copy(update={"server": config.server.model_copy(update={"admin_key_sha256": None})})
        async with gateway(config) as live:
            for headers in ({}, ADMIN):
                answer = await live.admin.get("/admin/state", headers=headers)
                assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")


async def test_admin_pages_come_to_the_public_port_where_configured() -> None:
    server = {"admin_on_public_port": True, "admin_port": None}
    async with both_lanes(server=server, keys=KEYS) as live:
        assert live.ports.admin is None
        assert (await live.public.get("/admin/state", headers=ADMIN)).status_code == 200
        assert (await live.public.get("/admin/state", headers=BEARER)).status_code == 401
        page = await live.public.get("/dashboard")
        assert page.headers["content-type"].startswith("text/html")


async def test_the_state_is_json_from_the_first_moment_on_and_tells_of_requests() -> None:
    async with both_lanes() as live:
        empty = await live.state()
        assert (empty["recent"], empty["live"]) == ([], 0)
        answer = await live.chat(headers={"x-draftlane-app": "letters"})
        recent = (await live.state())["recent"]
        assert [one["id"] for one in recent] == [answer.headers["x-request-id"]]
        assert (recent[0]["app"], recent[0]["lane"]) == ("letters", answer.headers["x-draftlane-lane"])
        assert {one["name"] for one in (await live.state())["backends"]} == {"speculative", "plain"}


# -- explaining what is not sent


async def explained(
    live: Live, body: Any = BODY, headers: dict[str, str] | None = None, **query: str
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await live.admin.post("/admin/explain", content=content, params=query, headers={**ADMIN, **(headers or {})})


async def test_a_body_is_explained_without_being_sent_or_remembered(live: Live) -> None:
    before, outcomes = await live.state(), len(live.outcomes)
    told = (await explained(live)).json()
    assert told["verdict"] == "Decision"
    assert told["backend"] in ("speculative", "plain")
    assert any("output tokens" in sentence for sentence in told["explanation"])
    state = await live.state()
    assert (state["recent"], state["live"], len(live.outcomes)) == (before["recent"], 0, outcomes)
    assert all(one["in_flight"] == 0 for one in state["backends"])


async def test_lane_rules_headers_and_other_surfaces_are_explained_too(live: Live) -> None:
    assert (await explained(live, {**BODY, "min_p": 0.1})).json()["reason"] == "lane-rule:min_p"
    completion = {"model": MODEL, "prompt": "Once upon", "logit_bias": {"5": 1}}
    assert (await explained(live, completion, path="/v1/completions")).json()["reason"] == "lane-rule:logit_bias"
    told = (await explained(live, headers={"x-draftlane-lane": "speculative"})).json()
    assert (told["reason"], told["lane"]) == ("forced", "speculative")
    told = (await explained(live, headers={"x-draftlane-app": "rag"})).json()
    assert (told["reason"], told["lane"]) == ("forced", "plain")
    told = (await explained(live, headers={"x-draftlane-expected-output-tokens": "77"})).json()
    assert told["output_tokens"] == 77


async def test_what_cannot_be_explained_is_an_error_object(live: Live) -> None:
    for answer in (await explained(live, b"{"), await explained(live, path="/v1/nothing"), await explained(live, b"")):
        assert (answer.status_code, error_of(answer)["type"]) == (400, "invalid_request_error")


async def test_the_description_of_the_admin_api_names_its_pages(live: Live) -> None:
    paths = (await live.admin.get("/admin/openapi.json")).json()["paths"]
    assert {"/health", "/ready", "/metrics", "/admin/state", "/admin/explain"} <= set(paths)


async def test_the_lanes_of_the_tests_are_what_they_seem(live: Live) -> None:
    """The stories above rest on it."""
    told = {one["name"]: one for one in (await live.state())["backends"]}
    assert (told["speculative"]["depth"], told["plain"]["depth"]) == (SPECULATIVE.depth, 0)


async def test_a_body_too_large_to_be_explained_is_refused_as_the_surfaces_refuse_it(live: Live) -> None:
    answer = await live.admin.post("/admin/explain", content=b" " * (BODY_BYTES + 1), headers=ADMIN)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "request_too_large"
