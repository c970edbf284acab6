"""Errors in the dialect of the surface, before an answer and in the middle of one; keys at the door."""

import json
from hashlib import sha256

import pytest

from tests.scripted.backend import Script
from tests.scripted.client import CHAT, Answer, connected, get, post
from tests.scripted.rig import scene
from tests.scripted.scripts import CHUNKED, SSE, chunk, head, then_close

SURFACES = {
    "/v1/chat/completions": b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}',
    "/v1/completions": b'{"model":"m","stream":true,"prompt":"hi"}',
    "/v1/responses": b'{"model":"m","stream":true,"input":"hi"}',
    "/v1/messages": b'{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}',
}
FIRST = b'event: x\ndata: {"type":"x","choices":[{"index":0,"text":"a","delta":{"content":"a"}}]}\n\n'


def kind_of(path: str, told: dict[str, object]) -> object:
    """The error's type, after checking the shape that clients of this surface parse."""
    error = told["error"]
    assert isinstance(error, dict)
    if path == "/v1/messages":
        assert told["type"] == "error"
    else:
        assert set(error) == {"message", "type", "param", "code"}
    return error["type"]


@pytest.mark.parametrize("path", SURFACES)
async def test_a_failure_before_the_first_byte(form: str, path: str) -> None:
    async with scene(form, then_close()) as (_, _, client):
        got = await client.ask(post(SURFACES[path], path))
        assert (got.status, got.header("content-type")) == (502, "application/json")
        assert kind_of(path, got.json()) == ("api_error" if path == "/v1/messages" else "server_error")


@pytest.mark.parametrize("path", SURFACES)
@pytest.mark.parametrize("cut", [b"", b'data: {"choices":[{"ind'], ids=["between events", "inside an event"])
async def test_a_failure_in_the_middle_of_a_stream(form: str, path: str, cut: bytes) -> None:
    sent = chunk(FIRST) + (chunk(cut) if cut else b"")
    async with scene(form, then_close(head(SSE + CHUNKED), sent)) as (_, _, client):
        got = await client.ask(post(SURFACES[path], path))
        assert not got.complete
        assert got.body.startswith(FIRST + cut)
        told = got.body.removeprefix(FIRST + cut).strip().split(b"\n")
        event = json.loads(told[-1].removeprefix(b"data: "))
        if path in ("/v1/messages", "/v1/responses"):
            assert told[0] == b"event: error"
            assert event["type"] == "error"
        else:
            assert event["error"]["code"] == "backend_failed"


@pytest.mark.parametrize("path", SURFACES)
async def test_a_request_that_cannot_be_read(form: str, path: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(b"{", path))
        assert got.status == 400
        assert kind_of(path, got.json()) == "invalid_request_error"
        assert backend.requests == []


async def asked(form: str, headers: str, *scripts: Script) -> tuple[Answer, int]:
    keys = {"sha256": {"team": sha256(b"sesame").hexdigest()}}
    async with scene(form, *scripts, keys=keys) as (_, backend, client):
        return await client.ask(post(CHAT, headers=headers)), len(backend.requests)


@pytest.mark.parametrize(
    "headers", ["authorization: Bearer sesame\r\n", "authorization: bearer sesame\r\n", "x-api-key: sesame\r\n"]
)
async def test_the_right_key(form: str, headers: str) -> None:
    got, requests = await asked(form, headers)
    assert (got.status, requests) == (200, 1)


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "authorization: Bearer wrong\r\n",
        "authorization: sesame2\r\n",
        "authorization: Bearer \r\n",
        "x-api-key: \xff\r\n",
    ],
)
async def test_the_wrong_key(form: str, headers: str) -> None:
    got, requests = await asked(form, headers)
    assert (got.status, got.error()["code"], requests) == (401, "invalid_api_key", 0)


async def test_the_model_list_needs_the_key_and_a_preflight_does_not(form: str) -> None:
    keys = {"sha256": {"team": sha256(b"sesame").hexdigest()}}
    async with scene(form, keys=keys, server={"cors_origins": ["*"]}) as (rig, _, client):
        assert (await client.ask(get("/v1/models"), "GET")).status == 401
        assert (await client.ask(get("/v1/models", headers="authorization: Bearer sesame\r\n"), "GET")).status == 200
        async with connected(rig.port) as page:
            asked = "origin: http://a\r\naccess-control-request-method: POST\r\n"
            assert (await page.ask(get("/v1/chat/completions", "OPTIONS", asked), "OPTIONS")).status == 204
