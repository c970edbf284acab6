"""Framing read without the parser is what the parser would read, or is left to it."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.chunks import missing_after, payload_of

payloads = st.lists(
    st.binary(min_size=1, max_size=300) | st.sampled_from([b"\r\n", b"a\r\n\r\n", b"0\r\n\r\n"]), min_size=1, max_size=5
)


def chunk(payload: bytes, digits: str = "x") -> bytes:
    return format(len(payload), digits).encode() + b"\r\n" + payload + b"\r\n"


class Parsed:
    """What llhttp makes of a chunked body."""

    def __init__(self, framed: bytes) -> None:
        self.body = b""
        self.refused = False
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            parser.feed_data(framed)
        except httptools.HttpParserError:
            self.refused = True

    def on_body(self, data: bytes) -> None:
        self.body += data


@given(payloads, st.sampled_from("xX"))
def test_whole_chunks_hold_what_the_parser_finds(pieces: list[bytes], digits: str) -> None:
    framed = b"".join(chunk(piece, digits) for piece in pieces)
    assert payload_of(framed) == b"".join(pieces) == Parsed(framed).body


@given(payloads, st.data())
def test_a_cut_chunk_is_left_to_the_parser_and_its_end_is_found(pieces: list[bytes], data: st.DataObject) -> None:
    framed = b"".join(map(chunk, pieces))
    cut = data.draw(st.integers(1, len(framed) - 1))
    borders, at = {0}, 0
    for piece in pieces:
        at += len(chunk(piece))
        borders.add(at)
    assert (payload_of(framed[:cut]) is not None) == (cut in borders)
    missing = missing_after(framed[:cut], 0)
    assert missing == -1 or cut + missing in borders


@given(st.binary(max_size=60) | st.from_regex(rb"[0-9a-fA-Fx+_; ]{1,8}\r\n[a-z]{0,20}\r\n", fullmatch=True))
def test_what_is_taken_for_whole_chunks_is_never_refused_by_the_parser(framed: bytes) -> None:
    payload = payload_of(framed)
    if payload is not None:
        parsed = Parsed(framed)
        assert (parsed.refused, parsed.body) == (False, payload)


@pytest.mark.parametrize(
    "framed",
    [
        b"0\r\n\r\n",
        b"3;a=b\r\nabc\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc\n\n",
        b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"1_0\r\n" + b"a" * 16 + b"\r\n",
        b" 3\r\nabc\r\n",
        b"3\nabc\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"",
    ],
)
def test_in_doubt_the_parser_decides(framed: bytes) -> None:
    assert payload_of(framed) is None
