"""A head told by its bytes brings what the parser would have brought, whatever comes with it."""

import asyncio
from itertools import pairwise

import pytest
import uvicorn
from httptools import HttpResponseParser
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from proxy.errors import GatewayError
from proxy.surfaces import SURFACES
from proxy.surfaces.base import Surface
from proxy.wire.answer import AnswerHead
from proxy.wire.arrivals import Arrivals
from proxy.wire.client import Address, Connection, Exchange, Pool
from proxy.wire.headers import Headers
from proxy.wire.inbound import Head, Inbound
from proxy.wire.known import known
from proxy.wire.repeats import FAMILIAR, TRIES
from proxy.wire.server import GatewayProtocol, bound_to

LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n"
CHAT = next(surface for surface in SURFACES if surface.name == "chat")


class Line:
    """A transport that writes down what it is told."""

    def __init__(self) -> None:
        self.said = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.said += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Visitors:
    """A door that answers each request with how many it has seen."""

    max_body_bytes, max_header_bytes = 60, 4096

    def __init__(self) -> None:
        self.seen: list[tuple[object, object]] = []

    def surface_at(self, method: bytes, path: bytes) -> Surface | None:
        return CHAT if path.startswith(b"/v1/chat") else None

    def refuse_early(self, inbound: Inbound, length: int | None) -> GatewayError | None:
        return GatewayError("too_large", "no") if length is not None and length > self.max_body_bytes else None

    def refused(self, inbound: Inbound, error: GatewayError) -> None:
        self.seen.append((error.kind, _told(inbound.head)))

    def enter(self, inbound: Inbound, surface: Surface) -> None:
        self.seen.append((_told(inbound.head), inbound.body()))
        inbound.start(200, None, [], 1)
        inbound.write(b"%d" % (len(self.seen) % 10))
        inbound.finish([])

    def error_lines(self, inbound: Inbound) -> list[bytes]:
        return []


def _told(head: Head) -> object:
    headers = [header for header in head.headers if header[0] != b"content-length"]
    return head.method, head.path, head.query, headers, head.http_10


class Server:
    """One connection to a gateway, without a socket."""

    def __init__(self, tries: int, neighbour: "Server | None" = None) -> None:
        """``neighbour``: a connection to the same gateway."""
        self.door: Visitors = Visitors() if neighbour is None else neighbour.door
        self.line = Line()
        kind = bound_to(self.door, Arrivals()) if neighbour is None else type(neighbour.protocol)
        self.protocol: GatewayProtocol = kind(CONFIG, ServerState(), {}, asyncio.get_running_loop())
        self.protocol.repeats._tries = tries
        self.protocol.connection_made(self.line)  # type: ignore[arg-type]  # as much of a transport as is asked for

    def hear(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            if not self.line.closed:
                self.protocol.data_received(piece)

    @property
    def left_with(self) -> object:
        """Everything that can be seen from outside."""
        return self.door.seen, self.line.said, self.line.closed


async def _nowhere(scope: object, receive: object, send: object) -> None:
    """The control plane."""


CONFIG = uvicorn.Config(_nowhere, log_config=None, lifespan="off")
CONFIG.load()
bodies = st.binary(max_size=12) | st.sampled_from([b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n", LINE, b"x" * 61])


def post(
    body: bytes, spelling: bytes = b"content-length: %d", more: bytes = b"x-a: 1\r\n", line: bytes = LINE
) -> bytes:
    return line + (spelling % len(body)) + b"\r\n" + more + b"\r\n" + body


requests = st.one_of(
    st.builds(post, bodies),
    st.builds(post, bodies, st.sampled_from([b"Content-Length:%d", b"content-length: 0%d", b"content-length: %d "])),
    st.builds(
        post, bodies, more=st.sampled_from([b"", b"x-a: 2\r\n", b"expect: 100-continue\r\n", b"connection: close\r\n"])
    ),
    st.builds(
        post, bodies, more=st.sampled_from([b"x-a: 1\n", b"transfer-encoding: chunked\r\n", b"content-length: 3\r\n"])
    ),
    st.builds(
        post, bodies, line=st.sampled_from([b"\r\n" + LINE, LINE.replace(b".1", b".0"), LINE.replace(b"ns", b"ns?a")])
    ),
    st.just(LINE + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    st.just(b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n"),
)


@st.composite
def talks(draw: st.DrawFn) -> list[bytes]:
    """What a client says after its first request: requests like it and unlike it, cut anywhere, with a wrong byte or none."""
    said = b"".join(draw(st.lists(requests, min_size=1, max_size=4)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(said) - 1))
        said = said[:at] + draw(st.binary(max_size=1)) + said[at + 1 :]
    borders = [0, *sorted(draw(st.lists(st.integers(0, len(said)), max_size=4))), len(said)]
    return [said[a:b] for a, b in pairwise(borders) if a < b]


@given(requests, talks())
@example(post(b"abc"), [post(b"de")])
@example(post(b"abc"), [post(b"de")[:-1], b"e" + post(b"f")])
@example(post(b"abc"), [post(b"x" * 61), post(b"f")])
async def test_a_connection_that_knows_heads_hears_what_one_hears_that_does_not(
    first: bytes, talk: list[bytes]
) -> None:
    knowing, parsing = Server(TRIES), Server(0)
    for server in (knowing, parsing):
        server.hear([first, *talk])
    await asyncio.gather(*knowing.protocol.tasks, *parsing.protocol.tasks)  # the control plane's
    assert knowing.left_with == parsing.left_with
    assert parsing.protocol.repeats._seen is None


@given(st.lists(requests, min_size=1, max_size=6), talks())
@example([post(b"abc")], [post(b"de")])
@example([post(b"abc")], [post(b"de")[:-1], b"e" + post(b"f")])
@example([post(b"abc")], [post(b"de", more=b"expect: 100-continue\r\n")])
async def test_a_new_connection_hears_the_same_whatever_others_said_before(
    said_before: list[bytes], talk: list[bytes]
) -> None:
    told = []
    for tries in (TRIES, 0):
        first = Server(tries)
        connections = [first, *(Server(tries, first) for _ in said_before)]
        for connection, request in zip(connections[:-1], said_before, strict=True):
            connection.hear([request])
        connections[-1].hear(talk)
        await asyncio.gather(*(task for one in connections for task in one.protocol.tasks))
        told.append([one.left_with for one in connections])
    assert told[0] == told[1]


def other(number: int) -> bytes:
    return post(b"abc", more=b"x-other: %d\r\n" % number)


async def test_the_first_request_of_a_connection_needs_no_parser_if_others_began_like_it() -> None:
    first = Server(TRIES)
    first.hear([post(b"abc")])
    for number in range(2 * FAMILIAR):  # as long as connections go on to begin like it
        second = Server(TRIES, first)
        del second.protocol.parser
        second.hear([post(b"another"), post(b"and more")])
        assert [seen[1] for seen in second.door.seen[-2:]] == [b"another", b"and more"]
        Server(TRIES, first).hear([other(number)])
    assert len(first.protocol.familiar.heads) == FAMILIAR


async def test_a_head_is_forgotten_when_others_have_come_since() -> None:
    first = Server(TRIES)
    first.hear([post(b"abc")])
    remembered = first.protocol.familiar.heads[0]
    for number in range(FAMILIAR):
        assert remembered in first.protocol.familiar.heads
        Server(TRIES, first).hear([other(number)])
    assert remembered not in first.protocol.familiar.heads


async def test_a_connection_whose_heads_differ_crowds_nobody_out() -> None:
    first = Server(TRIES)
    first.hear([post(b"abc")])
    changing, alternating = Server(TRIES, first), Server(TRIES, first)
    changing.hear([other(number) for number in range(TRIES)])
    alternating.hear([other(number % 2) for number in range(TRIES)])
    known_after = [seen.known.after for seen in first.protocol.familiar.heads]
    assert len(known_after) == len(set(known_after)) == 2


async def test_the_second_request_of_a_connection_needs_no_parser() -> None:
    server = Server(TRIES)
    server.hear([post(b"abc")])
    del server.protocol.parser
    server.hear([post(b"a longer one"), post(b"in two")[:-1], b"o", post(b"x" * 60)])
    bodies_heard = [seen[1] for seen in server.door.seen]
    assert bodies_heard == [b"abc", b"a longer one", b"in two", b"x" * 60]


async def test_a_fault_of_ours_is_answered_whether_the_head_is_known_or_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tries in (TRIES, 0):
        server = Server(tries)
        server.hear([post(b"abc")])
        monkeypatch.setattr(server.door, "enter", lambda *_: 1 // 0)
        server.hear([post(b"de")])
        assert b" 500 Internal Server Error\r\n" in server.line.said
        assert server.line.closed
    assert [record.message for record in caplog.records] == ["request handling failed"] * 2


async def test_a_client_whose_heads_always_differ_is_not_compared_for_ever() -> None:
    server = Server(TRIES)
    for number in range(TRIES + 5):
        server.hear([post(b"abc", more=b"x-request-id: %d\r\n" % number)])
    assert len(server.door.seen) == TRIES + 5
    seen_last = server.protocol.repeats._seen
    assert seen_last is not None
    assert b"x-request-id: %d" % (TRIES - 1) in seen_last.known.after


@pytest.mark.parametrize(
    "data",
    [
        LINE + b"content-length: 3\r\n\r\nabcd",
        LINE + b"content-length: 4\r\n\r\nabc",
        LINE + b"content-length: 3\r\nx-a: 1\n\r\nabc",
        LINE + b"\r\ncontent-length: 3\r\n\r\nabc",
        LINE + b"x-content-length: 3\r\n\r\nabc",
        LINE + b"content-length: 3\r\n",
        b"",
    ],
    ids=["goes beyond", "another length", "other line ends", "behind the head", "another name", "cut", "nothing"],
)
def test_only_a_whole_plain_head_becomes_known(data: bytes) -> None:
    assert known(data, 3) is None


# -- answers


class Heard:
    """Who asked the backend."""

    def __init__(self, takes_whole: bool) -> None:
        self.said: list[object] = []
        self.takes_whole = takes_whole

    def whole(self, answer: AnswerHead, body: bytes) -> bool:
        if self.takes_whole:
            self.head(answer, len(body))
            self.body(body)
            self.end([])
        return self.takes_whole

    def head(self, answer: AnswerHead, length: int | None) -> None:
        self.said.append((answer.status, answer.reason, answer.lines, answer.content_type, length))

    def body(self, data: bytes) -> None:
        self.said.append(data)

    def end(self, trailers: Headers) -> None:
        self.said.append(trailers)

    def again(self) -> bool:
        self.said.append("again")
        return True

    def failed(self, fault: str) -> None:
        self.said.append(fault)


def answer(body: bytes, start: bytes = b"HTTP/1.1 200 OK", more: bytes = b"content-type: a/b\r\n") -> bytes:
    return start + b"\r\ncontent-length: %d\r\n" % len(body) + more + b"\r\n" + body


answers = st.one_of(
    st.builds(answer, bodies),
    st.builds(answer, bodies, more=st.sampled_from([b"", b"connection: close\r\n", b"transfer-encoding: chunked\r\n"])),
    st.builds(
        answer, bodies, st.sampled_from([b"HTTP/1.0 200 OK", b"HTTP/1.1 500 Oh", b"HTTP/1.1 304 No", b"HTTP/1.1 100 C"])
    ),
    st.just(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
)


@st.composite
def changed(draw: st.DrawFn) -> list[bytes]:
    """An answer in pieces, with a wrong byte or none, perhaps with more behind it."""
    said = draw(answers) + draw(st.sampled_from([b"", b"", b"x"]))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(said) - 1))
        said = said[:at] + draw(st.binary(max_size=1)) + said[at + 1 :]
    borders = [0, *sorted(draw(st.lists(st.integers(0, len(said)), max_size=2))), len(said)]
    return [said[a:b] for a, b in pairwise(borders) if a < b]


def told(exchanges: list[list[bytes]], knowing: bool, bodiless: bool, takes_whole: bool = False) -> list[object]:
    """What the receivers hear of answers, one exchange after the other on one connection while it lasts."""
    pool, line, heard = Pool(Address("g", 1), 1.0), Line(), Heard(takes_whole)
    connection = Connection(pool)
    connection.connection_made(line)  # type: ignore[arg-type]  # as much of a transport as is asked for
    for pieces in exchanges:
        if line.closed:
            break
        connection.take(Exchange(pool, b"", b"", heard, bodiless))
        for piece in pieces:
            if not line.closed:
                connection.data_received(piece)
        pool.known = pool.known if knowing else None
        if connection.exchange is not None:
            break
    return [*heard.said, line.closed]


@given(st.lists(changed(), min_size=2, max_size=4), st.booleans())
@example([[answer(b"abc")], [answer(b"de")]], False)
@example([[answer(b"abc", b"HTTP/1.1 304 No")[:-3]], [answer(b"abc", b"HTTP/1.1 304 No")]], False)
@example([[answer(b"", b"HTTP/1.1 304 No")], [answer(b"0", b"HTTP/1.1 304 No")]], False)
@example([[answer(b"", b"HTTP/1.1 204 No")], [answer(b"0", b"HTTP/1.1 204 No")]], False)
@example([[answer(b"abc")], [answer(b"de")], [answer(b"abc")]], True)
def test_a_pool_that_knows_answers_says_what_one_says_that_does_not(
    exchanges: list[list[bytes]], bodiless: bool
) -> None:
    unknowing = told(exchanges, False, bodiless)
    assert told(exchanges, True, bodiless) == unknowing
    assert told(exchanges, True, bodiless, takes_whole=True) == unknowing


@pytest.mark.parametrize("takes_whole", [True, False])
def test_the_second_answer_needs_no_parser(takes_whole: bool) -> None:
    pool, heard = Pool(Address("g", 1), 1.0), Heard(takes_whole)
    connection = Connection(pool)
    connection.connection_made(Line())  # type: ignore[arg-type]  # as much of a transport as is asked for
    for number, body in enumerate((b"abc", b"another")):
        connection.take(Exchange(pool, b"", b"", heard, False))
        if number:
            connection._parser = HttpResponseParser(None)  # tells nobody anything
        connection.data_received(answer(body))
    assert heard.said[0::3] == [(200, b"OK", b"content-type: a/b\r\n", "a/b", size) for size in (3, 7)]
    assert heard.said[1::3] == [b"abc", b"another"]
