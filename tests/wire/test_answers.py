"""What backends may answer, and that clients get it as it was sent."""

import asyncio
import gzip
import zlib

import pytest

from policies.events import Finished, Refused
from tests.scripted.backend import Script, ScriptedBackend, Visit
from tests.scripted.client import CHAT, CHAT_STREAM, Answer, connected, get, post
from tests.scripted.clock import until
from tests.scripted.rig import config_for, running, scene
from tests.scripted.scripts import (
    ANSWER,
    CHUNKED,
    DONE,
    EVENTS,
    JSON,
    LAST,
    LAST_CHUNK,
    SSE,
    STREAM,
    answer,
    chunk,
    head,
    say,
    stream,
    then_close,
    whole,
)


async def got(form: str, script: Script, request: bytes = post(CHAT_STREAM)) -> Answer:
    """What a client gets of a backend's answer; the next answer on the same connections must be right, too."""
    async with scene(form, script, answer()) as (_, _, client):
        first = await client.ask(request)
        if first.by_close or not first.complete:
            return first
        assert (await client.ask(post(CHAT))).body == ANSWER
        return first


USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}}\n\n'
STREAMS = {
    "CRLF": STREAM.replace(b"\n", b"\r\n"),
    "CR": STREAM.replace(b"\n", b"\r"),
    "mixed ends": STREAM.replace(b"\n\n", b"\r\n\n", 2),
    "comments": b": keep-alive\n\n" + STREAM.replace(b"\n\n", b"\n\n: ping\n\n"),
    "fields": STREAM.replace(b"data:", b"event: message\nid: 7\nretry: 10\ndata:"),
    "no blank after the colon": STREAM.replace(b"data: ", b"data:"),
    "several data lines": EVENTS[0] + b'data: {"choices":\ndata: []}\n\n' + DONE,
    "no DONE": b"".join((*EVENTS, LAST)),
    "no last line end": STREAM[:-2],
    "nothing": b"",
    "only DONE": DONE,
    "data after DONE": STREAM + b": bye\n\n",
    "error event": EVENTS[0] + b'data: {"error":{"message":"CUDA","code":500}}\n\n' + DONE,
    "not JSON": EVENTS[0] + b"data: {oops\n\n" + DONE,
    "not UTF-8": EVENTS[0] + b"data: \xff\xfe\n\n" + DONE,
    "BOM": b"\xef\xbb\xbf" + STREAM,
    "NUL": EVENTS[0] + b"data: \x00\n\n" + DONE,
    "unknown deltas": b'data: {"choices":[{"delta":{"reasoning":"hm","x":[1]}}]}\n\n' + STREAM,
    "usage on a full chunk": STREAM.replace(b'"finish_reason":"stop"}]', b'"finish_reason":"stop"}],"usage":{"x":1}'),
    "odd usage": EVENTS[0] + b'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":"3","y":null}}\n\n' + DONE,
    "null everything": b'data: {"choices":null,"usage":null,"id":null}\n\n' + DONE,
    "a number": b"data: 7\n\ndata: []\n\ndata: \n\ndata\n\n" + DONE,
    "a very long event": b"data: " + b"x" * 3_000_000 + b"\n\n" + DONE,
    "interleaved choices": b"".join(
        b'data: {"choices":[{"index":%d,"delta":{"content":"a"}}]}\n\n' % (i % 3) for i in range(9)
    ),
    "tool calls": b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\""}}]}}]}\n\n'
    + DONE,
}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_passes_whatever_is_in_it(form: str, name: str) -> None:
    text = STREAMS[name]
    answered = await got(form, stream([text] if text else []))
    assert (answered.status, answered.body, answered.complete) == (200, text, True)


@pytest.mark.parametrize("name", ["CRLF", "comments", "several data lines", "not UTF-8", "no last line end"])
@pytest.mark.parametrize(
    "asks", [b"", b',"stream_options":{"include_usage":true}', b',"stream_options":{"x":1}', b',"stream_options":null']
)
async def test_our_usage_event_is_taken_out_and_nothing_else(form: str, name: str, asks: bytes) -> None:
    text = STREAMS[name]
    tail = USAGE.replace(b"\n", b"\r\n") if name == "CRLF" else USAGE
    told = text.replace(b"data: [DONE]", tail + b"data: [DONE]") if b"[DONE]" in text else text
    wants = b"include_usage" in asks
    async with scene(form, stream([told]), plain={"engine": "vllm"}) as (rig, backend, client):
        request = CHAT_STREAM.replace(b'"stream":true', b'"stream":true' + asks)
        answered = await client.ask(post(request))
        assert b'"include_usage":true' in backend.requests[0].body.replace(b" ", b"")
        assert (answered.body == told) if wants else (answered.body == text)
        if name in ("CRLF", "comments"):
            assert rig.of(Finished)[0].completion_tokens == 3


async def test_usage_is_not_asked_for_where_nothing_streams(form: str) -> None:
    async with scene(form, plain={"engine": "vllm"}) as (_, backend, client):
        for body in (CHAT, CHAT_STREAM.replace(b"true", b"false"), CHAT_STREAM.replace(b"true", b"null")):
            assert (await client.ask(post(body))).status == 200
            assert backend.requests[-1].body == body


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_a_stream_that_comes_in_crumbs(form: str, size: int) -> None:
    text = ("data: " + "żółć 🙂 " * 20 + "\n\n").encode() + DONE
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    answered = await got(form, stream(pieces))
    assert answered.body == text


DOCUMENTS = {
    "a completion": ANSWER,
    "white space first": b"\r\n " + ANSWER,
    "an error with 200": b'{"error":{"message":"CUDA","code":500}}',
    "a stream that says it is JSON": STREAM,
    "broken JSON": b'{"choices":[',
    "a list": b"[1]",
    "text": b"hello",
    "not UTF-8": b'{"choices":[],"x":"\xff"}',
    "odd usage": b'{"choices":null,"usage":{"completion_tokens":"7"}}',
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("headers", [JSON, SSE, b""], ids=["JSON", "SSE", "no type"])
async def test_a_document_is_told_alike_whether_its_head_came_before_or_not(
    form: str, name: str, headers: bytes
) -> None:
    """From the second time on its head is known and it is passed on whole, before it is read."""
    text = DOCUMENTS[name]
    async with scene(form, answer(text, headers=headers)) as (rig, _, client):
        told = [await client.ask(post(CHAT)) for _ in range(3)]
        assert [(one.status, one.body, one.complete) for one in told] == [(200, text, True)] * 3
        assert len({one.header("content-type") for one in told}) == 1
        await rig.at_rest()
        first, *others = [event._replace(at=0.0, id="") for event in rig.of(Finished)]
        assert others == [first, first]
        assert {(one.outcome, one.completion_tokens) for one in rig.site.outcomes} == {("ok", first.completion_tokens)}


FRAMINGS: dict[str, Script] = {
    "close": then_close(head(), ANSWER),
    "1.0 and close": then_close(b"HTTP/1.0 200 OK\r\n" + JSON + b"\r\n", ANSWER),
    "1.0 with length": then_close(whole().replace(b"HTTP/1.1", b"HTTP/1.0")),
    "connection: close": then_close(whole(headers=JSON + b"connection: close\r\n")),
    "chunk extensions": say(head(JSON + CHUNKED), b"%x;a=b\r\n%b\r\n" % (len(ANSWER), ANSWER), LAST_CHUNK),
    "trailers": say(head(JSON + CHUNKED + b"trailer: x-sum\r\n"), chunk(ANSWER), b"0\r\nx-sum: 9\r\n\r\n"),
    "103 first": say(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", whole()),
    "100 first": say(b"HTTP/1.1 100 Continue\r\n\r\n", whole()),
    "two 1xx": say(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", whole()),
    "upper-case coding": say(head(JSON + b"Transfer-Encoding: CHUNKED\r\n"), chunk(ANSWER), LAST_CHUNK),
    "hop-by-hop": say(
        head(JSON + CHUNKED + b"keep-alive: timeout=5\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\n"),
        chunk(ANSWER),
        LAST_CHUNK,
    ),
    "one big write": say(head(JSON + CHUNKED) + chunk(ANSWER) + LAST_CHUNK),
}


@pytest.mark.parametrize("name", FRAMINGS)
async def test_any_framing(form: str, name: str) -> None:
    answered = await got(form, FRAMINGS[name], post(CHAT))
    assert (answered.status, answered.body, answered.complete) == (200, ANSWER, True)
    assert answered.interim == []
    assert answered.header("x-hop") is None
    if name == "trailers" and form == "fast":
        assert answered.trailers == [("x-sum", "9")]


@pytest.mark.parametrize(
    "status",
    [
        b"201 Created",
        b"202 Accepted",
        b"400 Bad Request",
        b"401 Unauthorized",
        b"404 Not Found",
        b"409 Conflict",
        b"413 Too Large",
        b"418 I'm a teapot",
        b"422 Unprocessable",
        b"429 Slow Down",
        b"500 Oops",
        b"501 Not Here",
        b"502 Bad",
        b"503 Busy",
        b"504 Late",
        b"599 What",
        b"299 ",
        b"307 Moved",
    ],
)
async def test_any_status_passes_with_its_body(form: str, status: bytes) -> None:
    body = b'{"detail":[1]}'
    headers = JSON + b"retry-after: 7\r\nlocation: /x\r\nx-a: 1\r\nx-a: 2\r\nset-cookie: a\r\nset-cookie: b\r\n"
    answered = await got(form, answer(body, status, headers), post(CHAT_STREAM))
    assert (answered.status, answered.body, answered.complete) == (int(status[:3]), body, True)
    assert (answered.header("retry-after"), answered.all("set-cookie"), answered.all("x-a")) == (
        "7",
        ["a", "b"],
        ["1", "2"],
    )
    if form == "fast":
        assert answered.reason == status[4:].decode()


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_without_a_body(form: str, status: bytes) -> None:
    answered = await got(form, say(head(b"x-a: 1\r\n", status)), post(CHAT))
    assert (answered.status, answered.body, answered.header("transfer-encoding")) == (int(status[:3]), b"", None)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b'{"error":"text"}', b'{"error":{"code":400}}', b"\xff\xfe"]
)
async def test_error_bodies_of_any_shape(form: str, body: bytes) -> None:
    answered = await got(form, answer(body, b"400 Bad Request", b"content-type: text/html\r\n"), post(CHAT_STREAM))
    assert (answered.status, answered.body, answered.header("content-type")) == (400, body, "text/html")


async def test_a_json_answer_to_a_stream_request_and_the_reverse(form: str) -> None:
    assert (await got(form, answer(), post(CHAT_STREAM))).body == ANSWER
    assert (await got(form, stream(), post(CHAT))).body == STREAM


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_compressed_answers_pass_compressed(form: str, coding: str, streaming: bool) -> None:
    text = STREAM if streaming else ANSWER
    packed = {"gzip": gzip.compress(text), "deflate": zlib.compress(text)}.get(coding, b"not for us to read " * 9)
    kind = (SSE if streaming else JSON) + f"content-encoding: {coding}\r\nvary: accept-encoding\r\n".encode()
    script = stream([packed[:11], packed[11:]], kind) if streaming else answer(packed, headers=kind)
    answered = await got(
        form, script, post(CHAT_STREAM if streaming else CHAT, headers=f"accept-encoding: {coding}\r\n")
    )
    assert (answered.body, answered.header("content-encoding"), answered.complete) == (packed, coding, True)


async def test_accept_encoding_is_the_clients_unless_we_must_read_the_stream(form: str) -> None:
    async with scene(form, stream(), plain={"engine": "vllm"}) as (_, backend, client):
        await client.ask(post(CHAT_STREAM, headers="accept-encoding: gzip\r\n"))
        assert backend.requests[0].header("accept-encoding") is None
        await client.ask(post(CHAT, headers="accept-encoding: gzip, br\r\n"))
        assert backend.requests[1].header("accept-encoding") == "gzip, br"


async def test_large_answers_pass_whole(form: str) -> None:
    body = bytes(range(256)) * 40_000
    answered = await got(form, answer(body, headers=b"content-type: audio/mpeg\r\n"), post(CHAT))
    assert (answered.body == body, answered.complete) == (True, True)


async def test_multipart_goes_through_byte_for_byte(form: str) -> None:
    body = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(range(256)) * 50
    body += b'\r\n--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
    async with scene(form, answer(b"spoken", headers=b"content-type: text/plain\r\n")) as (_, backend, client):
        request = post(body, "/v1/audio/transcriptions", "content-type: multipart/form-data; boundary=b\r\n")
        answered = await client.ask(request)
        assert (answered.body, backend.requests[0].body) == (b"spoken", body)
        assert backend.requests[0].header("content-type") == "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", b'{"model":"m","input":["a",[1,2]],"encoding_format":"base64"}'),
        ("/v1/completions", b'{"model":"m","prompt":[1,2,3],"echo":true,"suffix":"x"}'),
        ("/v1/responses", b'{"model":"m","input":"hi"}'),
        ("/v1/messages", b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}'),
        ("/v1/messages/count_tokens", b'{"model":"m","messages":[]}'),
        ("/v1/rerank", b'{"model":"m","query":"q","documents":["d"]}'),
        ("/score", b'{"model":"m","text_1":"a","text_2":"b"}'),
        ("/tokenize", b'{"model":"m","prompt":"x"}'),
        ("/detokenize", b'{"model":"m","tokens":[1]}'),
    ],
)
async def test_every_surface_passes(form: str, path: str, body: bytes) -> None:
    async with scene(form, answer(b"[1]")) as (_, backend, client):
        answered = await client.ask(post(body, path))
        assert (answered.status, answered.body, backend.requests[0].body, backend.requests[0].target) == (
            200,
            b"[1]",
            body,
            path,
        )
        missing = await client.ask(post(body, path + "/nothing"))
        assert (missing.status, missing.error()["code"]) == (404, "unknown_url")


async def test_a_backend_closing_idle_connections_is_no_failure(form: str) -> None:
    async with scene(form, then_close(whole()), answer()) as (rig, backend, client):
        for _ in range(4):
            assert (await client.ask(post(CHAT))).body == ANSWER
        assert rig.faults == []
        assert len(backend.requests) == 4


async def test_a_reused_connection_that_dies_unheard_is_replaced(form: str) -> None:
    """The engine's keep-alive ran out while we wrote: the request is sent once more, and nobody is blamed."""

    async def dies(visit: Visit) -> None:
        visit.reset()

    async with scene(form, answer(), dies, answer()) as (rig, backend, client):
        assert (await client.ask(post(CHAT))).body == ANSWER
        assert (await client.ask(post(CHAT))).body == ANSWER
        assert rig.faults == []
        assert len(backend.visits) == 2


async def test_a_reused_connection_that_dies_late_is_the_backends_failure(form: str) -> None:
    """It had the request and worked on it: once more could bring the next one down, too."""
    late = asyncio.Event()

    async def dies_late(visit: Visit) -> None:
        await late.wait()
        visit.reset()

    async with scene(form, answer(), dies_late, answer()) as (rig, backend, client):
        assert (await client.ask(post(CHAT))).body == ANSWER
        await client.send(post(CHAT))
        await until(lambda: len(backend.requests) == 2)
        rig.later(2)
        late.set()
        assert (await client.answer()).status == 502
        assert rig.faults == [("plain", "closed")]
        assert len(backend.requests) == 2


async def test_a_refusal_of_the_speculative_lane_moves_to_the_plain_one_and_is_remembered(form: str) -> None:
    refusal = b'{"error":{"message":"min_tokens and min_p are not supported with speculative decoding","code":400}}'
    body = CHAT.replace(b'"messages"', b'"min_p":0.1,"messages"')
    spec, plain = ScriptedBackend(answer(refusal, b"400 Bad Request")), ScriptedBackend(answer())
    async with spec.listening(), plain.listening():
        config = config_for(
            {"spec": spec.url, "plain": plain.url}, policy={"lane_rules": {}}, spec={"engine": "vllm", "refuses": []}
        )
        async with running(config, form) as rig, connected(rig.port) as client:
            for _ in range(2):
                assert (await client.ask(post(body))).body == ANSWER
            assert (len(spec.requests), len(plain.requests)) == (1, 2)
            assert [event.feature for event in rig.of(Refused)] == ["min_p"]
            assert rig.gateway.fleet.backends["spec"].breaker.failures == 0
            await rig.at_rest()


async def test_control_pages(form: str) -> None:
    async with scene(form) as (_, _, client):
        for path in ("/health", "/ready", "/v1/models", "/models"):
            assert (await client.ask(get(path), "GET")).status == 200
            assert (await client.ask(get(path, "HEAD"), "HEAD")).body == b""
        page = await client.ask(get("/metrics"), "GET")
        assert b"draftlane_" in page.body
        for path in ("/admin/state", "/v1/nothing", "/"):
            answered = await client.ask(get(path), "GET")
            assert (answered.status, answered.error()["type"]) == (404, "invalid_request_error")
