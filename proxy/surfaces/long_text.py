"""The one long text of a long body, left out while the rest is parsed.

A parser has to look at each byte of a string, though all that is wanted of a prompt's text is where it begins and ends. Two searches
for a quote find that in a tenth of the time, where quotes are rare: of a request with 100 KB of prose the parser took an eighth.
A text full of quotes (code, JSON) is left to the parser after a few of them.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from proxy.surfaces.body import check_text, parse

T = TypeVar("T")
LONG = 32 << 10
"""Bytes of a body that may be worth it."""
_WORTH_IT: Final = 16 << 10
"""Bytes of a text that are."""
_QUOTES: Final = 64
"""Escaped quotes in either half of a text, beyond which the parser is quicker."""
_STAND_IN: Final = b'"the long text"'
"""In place of what stood outside of strings it makes no JSON: its first quote ends a string, and behind that comes a word."""
_as_it_is: Final = msgspec.json.Decoder(msgspec.Raw).decode
_BACKSLASH: Final = ord("\\")
_BACKSLASHES: Final = 32
"""In a row; who writes more of them would have them counted at every quote."""


class LongText:
    """What was left out, with its quotes; ``of`` puts it back."""

    __slots__ = ("_text",)

    def __init__(self, text: memoryview) -> None:
        self._text = text

    def of(self, data: memoryview) -> memoryview:
        """Raw JSON as it stood in the body."""
        if len(data) < len(_STAND_IN):
            return data
        if len(data) == len(_STAND_IN):
            return self._text if bytes(data) == _STAND_IN else data
        at = bytes(data).find(_STAND_IN)
        return data if at < 0 else memoryview(b"".join((data[:at], self._text, data[at + len(_STAND_IN) :])))


def parse_prompt(body: bytes, decode: Callable[[bytes], T]) -> tuple[T, LongText | None]:
    """``parse``, and what was left out of it. Raises as that does, but for what is wrong inside the long text
    (``check_long_text``)."""
    place = _place(body) if len(body) > LONG else None
    if place is not None:
        start, end = place
        asked = _parse_rest(b"".join((body[:start], _STAND_IN, body[end:])), decode)
        if asked is not None:
            check_text(body)
            return asked, LongText(memoryview(body)[start:end])
    return parse(body, decode), None


def check_long_text(body: bytes) -> None:
    """Raises BadRequest for a body that is no JSON, read as a whole. For when a backend failed over it: the fault may be the
    client's."""
    parse(body, _as_it_is)


def _parse_rest(rest: bytes, decode: Callable[[bytes], T]) -> T | None:
    """None where ``parse`` has to tell: it was no text that stood there, or the model's name, or more is wrong with the body."""
    if rest.count(_STAND_IN) != 1:  # the client's own words: in their place the text would be wrong
        return None
    try:
        asked = decode(rest)
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if getattr(asked, "model", None) == _STAND_IN[1:-1].decode() else asked


def _place(body: bytes) -> tuple[int, int] | None:
    """The text around the middle of ``body`` if it is a long one: its first quote, and behind its last."""
    middle = len(body) // 2
    end = _quote_from(body, middle)
    start = _quote_before(body, middle) if end >= 0 else -1
    return (start, end + 1) if 0 <= start < end - _WORTH_IT else None


def _quote_from(body: bytes, at: int) -> int:
    """The first quote from ``at`` on that is not escaped, -1 when it is not found soon."""
    for _ in range(_QUOTES):
        at = body.find(b'"', at)
        if at < 0 or _ends(body, at):
            return at
        at += 1
    return -1


def _quote_before(body: bytes, at: int) -> int:
    """The last one before ``at``."""
    for _ in range(_QUOTES):
        at = body.rfind(b'"', 0, at)
        if at < 0 or _ends(body, at):
            return at
    return -1


def _ends(body: bytes, quote: int) -> bool:
    """Whether a quote is not escaped: backslashes before it escape each other."""
    before = quote
    while before > 0 and body[before - 1] == _BACKSLASH:
        before -= 1
        if quote - before > _BACKSLASHES:
            return False
    return (quote - before) % 2 == 0
