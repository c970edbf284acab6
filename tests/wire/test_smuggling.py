"""Requests whose framing two readers could read in two ways: refused, and the connection ends."""

import pytest

from tests.scripted.client import CHAT, connected, get, post
from tests.scripted.rig import scene
from tests.scripted.scripts import ANSWER

LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: g\r\n"
SIZED = b"content-length: %d\r\n" % len(CHAT)
HIDDEN = b"GET /admin/state HTTP/1.1\r\nhost: g\r\n\r\n"

AMBIGUOUS = {
    "length and chunked": LINE + HOST + SIZED + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked and length": LINE + HOST + b"transfer-encoding: chunked\r\n" + SIZED + b"\r\n0\r\n\r\n" + HIDDEN,
    "two different lengths": LINE + HOST + SIZED + b"content-length: 0\r\n\r\n" + CHAT,
    "the same length twice": LINE + HOST + SIZED + SIZED + b"\r\n" + CHAT,
    "a list of lengths": LINE + HOST + b"content-length: 5, 5\r\n\r\nhello",
    "a signed length": LINE + HOST + b"content-length: +5\r\n\r\nhello",
    "a negative length": LINE + HOST + b"content-length: -5\r\n\r\nhello",
    "a length in hex": LINE + HOST + b"content-length: 0x5\r\n\r\nhello",
    "an empty length": LINE + HOST + b"content-length:\r\n\r\n" + CHAT,
    "a huge length": LINE + HOST + b"content-length: 99999999999999999999999\r\n\r\n",
    "gzip, chunked": LINE + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": LINE + HOST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": LINE + HOST + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": LINE + HOST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": LINE + HOST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": LINE + HOST + b"content-length : %d\r\n\r\n" % len(CHAT) + CHAT,
    "space before a coding's colon": LINE + HOST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": LINE + HOST + b"x-a: 1\r\n transfer-encoding: chunked\r\n" + SIZED + b"\r\n" + CHAT,
    "a header without colon": LINE + HOST + b"nonsense\r\n" + SIZED + b"\r\n" + CHAT,
    "a space first": LINE + b" " + HOST + SIZED + b"\r\n" + CHAT,
    "a bare CR in a value": LINE + HOST + b"x-a: 1\rx-b: 2\r\n" + SIZED + b"\r\n" + CHAT,
    "a NUL in a value": LINE + HOST + b"x-a: 1\x002\r\n" + SIZED + b"\r\n" + CHAT,
    "a NUL in a name": LINE + HOST + b"x\x00a: 1\r\n" + SIZED + b"\r\n" + CHAT,
    "a bad chunk size": LINE + HOST + b"transfer-encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": LINE + HOST + b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    "a chunk that is too long": LINE + HOST + b"transfer-encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "a chunk size with no end": LINE + HOST + b"transfer-encoding: chunked\r\n\r\n" + b"1" * 40 + b"\r\n",
    "no host": LINE + SIZED + b"\r\n" + CHAT,
    "two hosts": LINE + HOST + b"host: other\r\n" + SIZED + b"\r\n" + CHAT,
    "no version": b"POST /v1/chat/completions\r\n" + HOST + SIZED + b"\r\n" + CHAT,
    "HTTP/0.9": b"POST /v1/chat/completions HTTP/0.9\r\n" + HOST + SIZED + b"\r\n" + CHAT,
    "HTTP/3.0": b"POST /v1/chat/completions HTTP/3.0\r\n" + HOST + SIZED + b"\r\n" + CHAT,
    "a space in the target": b"POST /v1/chat completions HTTP/1.1\r\n" + HOST + SIZED + b"\r\n" + CHAT,
    "not HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
    "the HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a lower-case method": b"post /v1/chat/completions HTTP/1.1\r\n" + HOST + SIZED + b"\r\n" + CHAT,
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_it_is_refused_and_the_connection_ends(name: str) -> None:
    """The fast form; what h11 makes of the same bytes is not ours."""
    async with scene("fast") as (_, backend, client):
        await client.send(AMBIGUOUS[name])
        got = await client.answer()
        assert 400 <= got.status <= 505
        assert got.error()["message"]
        assert got.header("connection") == "close"
        assert await client.closed()
        assert backend.requests == []


LENIENT = {
    "bare LF": LINE.replace(b"\r", b"") + b"host: g\ncontent-length: %d\n\n" % len(CHAT) + CHAT,
    "bare LF after a header": LINE + b"host: g\n" + SIZED + b"\r\n" + CHAT,
    "bare LF in chunks": LINE + HOST + b"transfer-encoding: chunked\r\n\r\n5\nhello\n0\n\n",
    "an empty line first": b"\r\n" + LINE + HOST + SIZED + b"\r\n" + CHAT,
    "a tab around a value": LINE + b"host:\tg\t\r\n" + SIZED + b"\r\n" + CHAT,
}


@pytest.mark.parametrize("name", LENIENT)
async def test_lenient_reading_never_makes_two_requests_of_one(name: str) -> None:
    async with scene("fast") as (_, backend, client):
        await client.send(LENIENT[name])
        got = await client.answer()
        assert got.status in (200, 400)
        assert [request.body for request in backend.requests] == [CHAT] * (got.status == 200)


async def test_a_length_of_the_client_never_reaches_the_backend_with_another_one(form: str) -> None:
    async with scene(form) as (_, backend, client):
        await client.ask(post(CHAT))
        framing = [pair for pair in backend.requests[0].headers if pair[0] in ("content-length", "transfer-encoding")]
        assert framing == [("content-length", str(len(CHAT)))]


async def test_trailers_do_not_become_headers(form: str) -> None:
    async with scene(form) as (_, backend, client):
        body = b"%x\r\n%b\r\n0\r\nx-draftlane-app: evil\r\nx-trailer: 1\r\n\r\n" % (len(CHAT), CHAT)
        got = await client.ask(LINE + HOST + b"transfer-encoding: chunked\r\n\r\n" + body)
        assert got.status == 200
        assert backend.requests[0].header("x-trailer") is None
        assert backend.requests[0].body == CHAT


@pytest.mark.parametrize(("server", "status", "code"), [({}, 431, "headers_too_large")])
async def test_heads_have_a_limit(form: str, server: dict[str, int], status: int, code: str) -> None:
    async with scene(form) as (rig, _, client):
        got = await client.ask(post(CHAT, headers="cookie: " + "x" * 20_000 + "\r\n"))
        assert got.status == 200
        if form == "fast":
            got = await client.ask(post(CHAT, headers="cookie: " + "x" * 70_000 + "\r\n"))
            assert (got.status, got.error()["code"]) == (status, code)
            async with connected(rig.port) as second:
                got = await second.ask(post(CHAT, headers="x-a: b\r\n" * 20_000))
                assert got.status == status
            async with connected(rig.port) as third:
                got = await third.ask(post(CHAT, path="/v1/" + "x" * 70_000))
                assert (got.status, got.error()["code"]) == (414, "uri_too_long")


async def test_a_head_that_never_ends_is_cut_off_at_the_limit() -> None:
    async with scene("fast") as (_, _, client):
        await client.send(LINE + HOST + b"x-endless: ")
        for _ in range(20):
            await client.send(b"y" * 10_000)
        got = await client.answer()
        assert (got.status, got.error()["code"]) == (431, "headers_too_large")


async def test_pipelined_requests_are_answered_in_order(form: str) -> None:
    async with scene(form) as (_, backend, client):
        await client.send(post(CHAT) + get("/v1/models") + post(CHAT) + get("/nothing") + get("/health") + post(b"{"))
        kinds = [await client.answer(method) for method in ("POST", "GET", "POST", "GET", "GET", "POST")]
        assert [got.status for got in kinds] == [200, 200, 200, 404, 200, 400]
        assert [kinds[0].body, kinds[2].body] == [ANSWER, ANSWER]
        assert len(backend.requests) == 2


async def test_a_bad_request_behind_a_good_one_costs_only_itself() -> None:
    async with scene("fast") as (_, backend, client):
        await client.send(post(CHAT) + AMBIGUOUS["length and chunked"])
        assert (await client.answer()).body == ANSWER
        assert len(backend.requests) == 1
        rest = await client.reader.read()
        assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")


async def test_a_broken_body_behind_a_good_request_ends_the_connection() -> None:
    async with scene("fast") as (_, backend, client):
        await client.send(post(CHAT) + AMBIGUOUS["a bad chunk size"])
        assert (await client.answer()).body == ANSWER
        rest = await client.reader.read()
        assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")
        assert len(backend.requests) == 1


async def test_many_pipelined_requests_do_not_pile_up(form: str) -> None:
    async with scene(form) as (_, backend, client):
        await client.send(post(CHAT) * 300)
        for _ in range(300):
            assert (await client.answer()).body == ANSWER
        assert len(backend.requests) == 300
