"""Compressed answers: what is read is bounded, what is sent on is untouched."""

import gzip
import zlib

import pytest

from proxy.meter import meter_for
from proxy.meter.choices import Choices

EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
SSE = "text/event-stream"


def test_each_flushed_event_is_seen_at_once() -> None:
    squeeze = zlib.compressobj(wbits=31)
    meter = meter_for(Choices(), SSE, "GZIP ", True)
    for second in range(3):
        data = squeeze.compress(EVENT) + squeeze.flush(zlib.Z_SYNC_FLUSH)
        assert meter.feed(data, float(second)) == data
        assert meter.events == second + 1
    assert meter.first_token_at == 0.0


def test_several_gzip_members_are_one_stream() -> None:
    meter = meter_for(Choices(), SSE, "x-gzip", False)
    meter.feed(gzip.compress(EVENT) + gzip.compress(EVENT) + gzip.compress(EVENT), 1.0)
    assert meter.facts().events == 3


def test_a_bomb_is_passed_on_unread() -> None:
    bomb = gzip.compress(b":" * (64 << 20))
    meter = meter_for(Choices(), SSE, "gzip", False)
    assert meter.feed(bomb, 1.0) == bomb
    assert meter.feed(gzip.compress(EVENT), 2.0) == gzip.compress(EVENT)
    assert meter.facts().events == 0


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, br"])
def test_what_cannot_be_decompressed_is_passed_on(coding: str) -> None:
    meter = meter_for(Choices(), SSE, coding, True)
    assert meter.feed(b"\x00\x01\x02", 1.0) == b"\x00\x01\x02"
    assert meter.feed(EVENT, 2.0) == EVENT
    assert meter.end(3.0) == b""
    assert meter.first_token_at is None


@pytest.mark.parametrize("coding", ["", "identity", "Identity"])
def test_no_coding_is_no_obstacle(coding: str) -> None:
    meter = meter_for(Choices(), SSE, coding, False)
    meter.feed(EVENT, 1.0)
    assert meter.facts().events == 1
