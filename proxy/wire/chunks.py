"""Whole chunks: the framing of streams, read without the parser where nothing about it is in doubt.

Engines write one event per chunk, and a socket read mostly holds whole chunks. The parser (llhttp) has no state between two
chunks, so it may be left out for these, and they may travel on as they came. Anything else (extensions, the last
chunk, a chunk cut in two, what is no hexadecimal number) is for the parser, which is strict about it.
"""

import re
from functools import lru_cache
from typing import Final

_HEX: Final = re.compile(rb"[0-9a-fA-F]{1,6}")
_LONGEST: Final = 8
"""Digits of a size and the line end after it."""


@lru_cache(maxsize=4096)
def _size(digits: bytes) -> int:
    """The number, or 0 for what is none (and for the last chunk). Cached: events of a stream have few sizes."""
    return int(digits, 16) if _HEX.fullmatch(digits) else 0


def payload_of(data: bytes) -> bytes | None:
    """What is in ``data`` if that is one or more whole chunks, else None."""
    end = data.find(b"\r\n", 1, _LONGEST)
    size = _size(data[:end]) if end > 0 else 0
    if not size or not data.endswith(b"\r\n"):
        return None
    if end + size + 4 == len(data):
        return data[end + 2 : -2]
    return _payloads(data)


def _payloads(data: bytes) -> bytes | None:
    pieces, at = [], 0
    while at < len(data):
        end = data.find(b"\r\n", at, at + _LONGEST)
        size = _size(data[at:end]) if end > 0 else 0
        after = end + 2 + size
        if not size or data[after : after + 2] != b"\r\n":
            return None
        pieces.append(data[end + 2 : after])
        at = after + 2
    return b"".join(pieces)


def missing_after(data: bytes, at: int) -> int:
    """Bytes that the last chunk still lacks, its line end included, when a chunk begins at ``at`` of ``data``.

    0: the next chunk begins with the next read; -1: cannot be told without the parser. Line ends inside are the
    parser's to check: it has read the same bytes.
    """
    while at < len(data):
        end = data.find(b"\r\n", at, at + _LONGEST)
        size = _size(data[at:end]) if end > 0 else 0
        if not size:
            return -1
        at = end + 4 + size
    return at - len(data)
