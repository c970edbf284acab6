"""What clients may send, and the backend's view of it."""

import gzip
import zlib

import pytest

from tests.scripted.client import CHAT, CHAT_STREAM, connected, get, post
from tests.scripted.clock import until
from tests.scripted.rig import scene
from tests.scripted.scripts import ANSWER, STREAM, answer, stream, then_hold


def chunked(body: bytes, size: int = 7, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces) + b"0\r\n" + trailers + b"\r\n"


def chunked_post(body: bytes, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + chunked(body, 7, extension, trailers)


@pytest.mark.parametrize(("extension", "trailers"), [(b"", b""), (b';a="b"', b""), (b"", b"x-sum: 1\r\n")])
async def test_chunked_bodies_arrive_whole_with_one_framing(form: str, extension: bytes, trailers: bytes) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(chunked_post(CHAT, extension, trailers))
        assert (got.status, backend.requests[0].body) == (200, CHAT)
        assert backend.requests[0].header("transfer-encoding") is None
        assert backend.requests[0].header("content-length") == str(len(CHAT))
        assert backend.requests[0].header("x-sum") is None
        assert (await client.ask(post(CHAT))).status == 200


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(CHAT, mtime=0)),
        ("x-gzip", gzip.compress(CHAT, mtime=0)),
        ("deflate", zlib.compress(CHAT)),
        ("deflate", zlib.compress(CHAT, wbits=-15)),
        ("identity", CHAT),
    ],
    ids=["gzip", "x-gzip", "deflate", "raw deflate", "identity"],
)
async def test_compressed_bodies_go_on_as_they_came(form: str, coding: str, packed: bytes) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(packed, headers=f"content-encoding: {coding}\r\n"))
        assert (got.status, backend.requests[0].body) == (200, packed)
        assert backend.requests[0].header("content-encoding") == coding


async def test_an_inflated_body_is_bounded(form: str) -> None:
    async with scene(form, server={"max_body_bytes": 4096}) as (_, backend, client):
        bomb = gzip.compress(CHAT.replace(b"hi", b"x" * 100_000))
        assert len(bomb) < 4096
        got = await client.ask(post(bomb, headers="content-encoding: gzip\r\n"))
        assert (got.status, got.error()["code"], backend.requests) == (413, "request_too_large", [])


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, deflate"])
async def test_codings_nobody_here_reads_are_refused(form: str, coding: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(CHAT, headers=f"content-encoding: {coding}\r\n"))
        assert (got.status, got.error()["code"]) == (415, "unsupported_content_encoding")
        assert backend.requests == []


async def test_broken_compression_is_the_clients_fault(form: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(b"\x1f\x8b nonsense", headers="content-encoding: gzip\r\n"))
        assert (got.status, got.error()["type"], backend.requests) == (400, "invalid_request_error", [])
        cut = gzip.compress(CHAT)[:-10]
        assert (await client.ask(post(cut, headers="content-encoding: gzip\r\n"))).status == 400


async def test_expect_continue_is_answered_before_the_body(form: str) -> None:
    async with scene(form) as (_, backend, client):
        request = post(CHAT, headers="expect: 100-continue\r\n")
        await client.send(request[: -len(CHAT)])
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n" or form == "portable"
        await client.send(CHAT)
        assert (await client.answer()).body == ANSWER
        assert backend.requests[0].header("expect") is None


async def test_expect_continue_is_refused_without_reading_the_body(form: str) -> None:
    async with scene(form, server={"max_body_bytes": 100}) as (_, backend, client):
        await client.send(post(b"x" * 101, headers="expect: 100-continue\r\n")[:-101])
        got = await client.answer()
        assert (got.status, got.interim) == (413, [])
        assert got.error()["code"] == "request_too_large"
        assert await client.closed()
        assert backend.requests == []


async def test_expect_continue_of_a_pipelined_request(form: str) -> None:
    async with scene(form) as (_, backend, client):
        second = post(CHAT, headers="expect: 100-continue\r\n")
        await client.send(post(CHAT) + second[: -len(CHAT)])
        assert (await client.answer()).body == ANSWER
        assert b" 100 " in await client.reader.readuntil(b"\r\n\r\n")
        await client.send(CHAT)
        assert (await client.answer()).body == ANSWER
        assert len(backend.requests) == 2


async def test_http_1_0_gets_no_chunks_and_a_close(form: str) -> None:
    async with scene(form, stream(), answer()) as (rig, _, client):
        got = await client.ask(post(CHAT_STREAM, version="1.0"))
        assert (got.status, got.body, got.by_close) == (200, STREAM, True)
        assert got.header("transfer-encoding") is None
        async with connected(rig.port) as second:
            got = await second.ask(post(CHAT, version="1.0"))
            assert (got.status, got.body, got.complete) == (200, ANSWER, True)
            assert await second.closed()


async def test_http_1_0_without_a_host(form: str) -> None:
    async with scene(form) as (_, _, client):
        request = post(CHAT, version="1.0").replace(b"host: gateway\r\n", b"")
        assert (await client.ask(request)).body == ANSWER


async def test_connection_close_is_honoured(form: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(CHAT, headers="connection: close\r\n"))
        assert (got.body, got.header("connection")) == (ANSWER, "close")
        assert await client.closed()
        assert backend.requests[0].header("connection") is None


async def test_connections_are_kept_on_both_sides(form: str) -> None:
    async with scene(form) as (_, backend, client):
        for _ in range(5):
            assert (await client.ask(post(CHAT))).body == ANSWER
        assert len(backend.visits) == 1
        assert backend.visits[0].served == 5


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/chat/completions", "/v1/chat/completions/", "/chat/completions/"]
)
async def test_with_and_without_v1_and_trailing_slash(form: str, path: str) -> None:
    async with scene(form) as (_, backend, client):
        assert (await client.ask(post(CHAT, path=path + "?a=%2F&b"))).body == ANSWER
        assert backend.requests[0].target == "/v1/chat/completions?a=%2F&b"


async def test_absolute_form_is_served(form: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(CHAT, path="http://gateway/v1/chat/completions?q=1"))
        assert (got.status, backend.requests[0].target) == (200, "/v1/chat/completions?q=1")


async def test_an_upgrade_to_h2c_is_declined_by_serving_http_1_1(form: str) -> None:
    async with scene(form) as (_, backend, client):
        offer = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
        for _ in range(2):
            got = await client.ask(post(CHAT, headers=offer))
            assert (got.status, got.body) == (200, ANSWER)
        request = backend.requests[1]
        assert request.body == CHAT
        assert [request.header(name) for name in ("connection", "upgrade", "http2-settings")] == [None] * 3


async def test_a_websocket_is_refused_in_words(form: str) -> None:
    async with scene(form) as (_, backend, client):
        upgrade = (
            "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAA\r\nsec-websocket-version: 13\r\n"
        )
        got = await client.ask(get("/v1/realtime", headers=upgrade), "GET")
        assert got.status in (400, 404, 426)
        assert got.error()["type"] == "invalid_request_error"
        assert backend.requests == []


async def test_connect_is_refused(form: str) -> None:
    async with scene(form) as (_, _, client):
        got = await client.ask(b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n")
        assert 400 <= got.status < 600


async def test_head_get_and_options_on_a_surface(form: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(get("/v1/chat/completions"), "GET")
        assert (got.status, got.error()["code"]) == (405, "method_not_allowed")
        got = await client.ask(get("/v1/chat/completions", "HEAD"), "HEAD")
        assert (got.status, got.body) == (405, b"")
        got = await client.ask(get("/v1/chat/completions", "OPTIONS"), "OPTIONS")
        assert got.status == 204
        assert backend.requests == []


async def test_head_reaches_configured_paths(form: str) -> None:
    script = answer(b"", headers=b"x-size: 9\r\n")
    async with scene(form, script, extra_paths=["/v1/files/*"]) as (_, backend, client):
        got = await client.ask(get("/v1/files/a", "HEAD"), "HEAD")
        assert (got.status, got.header("x-size")) == (200, "9")
        assert (await client.ask(get("/v1/files/a", "GET"), "GET")).status == 200
        assert [request.method for request in backend.requests] == ["HEAD", "GET"]


async def test_extra_paths_take_any_method(form: str) -> None:
    async with scene(form, extra_paths=["/v1/files/*"]) as (_, backend, client):
        for method in ("DELETE", "PUT", "PATCH"):
            assert (await client.ask(get("/v1/files/a%20b?x=1", method), method)).status == 200
        assert {request.target for request in backend.requests} == {"/v1/files/a%20b?x=1"}


async def test_cors(form: str) -> None:
    async with scene(form, server={"cors_origins": ["http://page"]}) as (_, _, client):
        asked = "origin: http://page\r\naccess-control-request-method: POST\r\naccess-control-request-headers: x-a\r\n"
        got = await client.ask(get("/v1/chat/completions", "OPTIONS", asked), "OPTIONS")
        assert (got.status, got.header("access-control-allow-headers")) == (204, "x-a")
        got = await client.ask(post(CHAT, headers="origin: http://page\r\n"))
        assert (got.status, got.all("access-control-allow-origin")) == (200, ["http://page"])
        got = await client.ask(post(b"[", headers="origin: http://page\r\n"))
        assert (got.status, got.header("access-control-allow-origin")) == (400, "http://page")
        got = await client.ask(post(CHAT, headers="origin: http://other\r\n"))
        assert (got.status, got.header("access-control-allow-origin")) == (200, None)


async def test_what_stays_on_this_hop(form: str) -> None:
    headers = (
        "connection: x-secret, keep-alive\r\nx-secret: 1\r\nte: trailers\r\nkeep-alive: 5\r\nproxy-authorization: b\r\n"
    )
    headers += "x-a: 1\r\nx-a: 2\r\nX-Mixed: Ü\r\ntraceparent: t\r\nauthorization: Bearer k\r\nx-api-key: k\r\n"
    async with scene(form) as (_, backend, client):
        assert (await client.ask(post(CHAT, headers=headers))).status == 200
        sent = backend.requests[0]
        for name in ("x-secret", "te", "keep-alive", "proxy-authorization", "connection", "authorization", "x-api-key"):
            assert sent.header(name) is None
        assert [value for name, value in sent.headers if name == "x-a"] == ["1", "2"]
        assert (sent.header("traceparent"), sent.header("x-mixed")) == ("t", "Ã\x9c")
        assert sent.header("host") == backend.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("mode", "wanted"), [("pass", ["9.9.9.9"]), ("append", ["9.9.9.9", "127.0.0.1"]), ("drop", [])]
)
async def test_forwarding_headers(form: str, mode: str, wanted: list[str]) -> None:
    async with scene(form, server={"forwarded": mode}) as (_, backend, client):
        await client.ask(post(CHAT, headers="x-forwarded-for: 9.9.9.9\r\nforwarded: for=9.9.9.9\r\n"))
        sent = backend.requests[0]
        assert [value for name, value in sent.headers if name == "x-forwarded-for"] == wanted
        assert (sent.header("forwarded") is None) == (mode == "drop")
        assert (sent.header("x-forwarded-proto") == "http") == (mode == "append")


async def test_request_ids(form: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(CHAT, headers="x-request-id: mine-1\r\n"))
        assert (got.all("x-request-id"), backend.requests[0].header("x-request-id")) == (["mine-1"], "mine-1")
        for bad in ("x" * 6000, "a b", "a\tb", "<script>"):
            got = await client.ask(post(CHAT, headers=f"x-request-id: {bad}\r\n"))
            assert got.status == 200
            assert got.header("x-request-id") not in (bad, None)


async def test_the_same_id_twice_at_once(form: str) -> None:
    async with scene(form, then_hold(), answer()) as (rig, backend, client):
        await client.send(post(CHAT, headers="x-request-id: same\r\n"))
        await backend.asked(1)
        async with connected(rig.port) as second:
            got = await second.ask(post(CHAT, headers="x-request-id: same\r\n"))
        assert (got.status, got.header("x-request-id")) == (200, "same")
        client.leave()
        await until(lambda: backend.visits[0].gone)


async def test_a_body_in_pieces(form: str) -> None:
    async with scene(form) as (_, backend, client):
        request = post(CHAT)
        for at in range(0, len(request), 5):
            await client.send(request[at : at + 5])
        assert (await client.answer()).body == ANSWER
        assert backend.requests[0].body == CHAT


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"NaN", b"\xff", b'{"model":"m\xe4"}', b"[" * 100_000, b'{"a":' * 50_000]
)
async def test_bodies_that_are_no_request(form: str, body: bytes) -> None:
    async with scene(form) as (_, _, client):
        got = await client.ask(post(body))
        assert (got.status, got.error()["type"]) == (400, "invalid_request_error")
        assert (await client.ask(post(CHAT))).status == 200


NUMBERS = (b"n", b"max_tokens", b"max_completion_tokens", b"temperature", b"min_tokens", b"seed")


@pytest.mark.parametrize(
    "part",
    [
        b'"messages":[]',
        b'"messages":null',
        b'"messages":"x"',
        b'"messages":[null]',
        b'"messages":[{}]',
        b'"messages":[{"role":"user","content":null}]',
        b'"messages":{"a":1}',
        b'"stream":"yes"',
        b'"max_tokens":"many"',
        b'"n":-3',
        b'"temperature":"hot"',
        b'"stream_options":[]',
        b'"stream":true,"stream_options":null',
        b'"tools":7',
        b'"response_format":"x"',
        b'"logit_bias":[]',
        b'"max_tokens":1e99',
        b'"n":1e400',
        *(b'"%b":%d' % (name, number) for name in NUMBERS for number in (10**30, 10**400, -(10**400))),
        b'"messages":[{"role":"user","content":[{"type":"image_url"},7,null]}]',
        b'"messages":[{"role":"user","content":"<|endoftext|>"}]',
        b'"seed":12345678901234567',
        b'"x":"\\u0000\\ud800"',
    ],
    ids=lambda part: part[:60].decode(),
)
async def test_odd_but_legal_requests_go_on(form: str, part: bytes) -> None:
    async with scene(form) as (_, backend, client):
        body = b'{"model":"m",' + part + b"}"
        got = await client.ask(post(body))
        assert got.status == 200
        sent = backend.requests[0].body
        assert sent == body or b"stream" in part


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "text/plain", "application/vnd.x+json", "", "multipart/form-data"]
)
async def test_content_types(form: str, kind: str) -> None:
    async with scene(form) as (_, backend, client):
        got = await client.ask(post(CHAT, headers=f"content-type: {kind}\r\n"))
        assert got.status == 200
        assert backend.requests[0].header("content-type") == kind
