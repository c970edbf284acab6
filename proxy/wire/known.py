"""Heads that came before, recognised by their bytes.

A connection says the same head again and again, but for the digits of Content-Length. Where the bytes around those digits are
those of a head that llhttp took apart before, it would find the same again; to compare them costs a twentieth of that.
"""

import re
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})\r\n", re.IGNORECASE)
_DIGITS: Final = 15
_ZERO: Final = ord("0")


class Known:
    """The bytes of a head before and behind the digits of its Content-Length."""

    __slots__ = ("after", "before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        self.after = after

    def body_of(self, data: bytes) -> tuple[int, int] | None:
        """Where the body begins and how long it is, when ``data`` begins with this head."""
        if not data.startswith(self.before):
            return None
        at = len(self.before)
        last, length = min(len(data), at + _DIGITS), 0
        while at < last:  # by hand: to find, cut out, check and convert the digits takes four times as long
            digit = data[at] - _ZERO
            if not 0 <= digit <= 9:
                break
            length = length * 10 + digit
            at += 1
        end = at + len(self.after)
        return (end, length) if at > len(self.before) and data[at:end] == self.after else None


def known(data: bytes, length: int | None) -> Known | None:
    """The head that ``data`` begins with, of a request that llhttp found to be well-formed and to have a body of
    ``length`` bytes; None when it cannot be told by its bytes, or when ``data`` goes beyond this request."""
    size = data.find(b"\r\n\r\n") + 4
    found = _LENGTH.search(data, 0, size)
    if size < 4 or found is None or int(found[1]) != length or len(data) > size + length:
        return None
    if data.count(b"\n", 0, size) != data.count(b"\r\n", 0, size):
        return None  # other line ends than CRLF: its head may not end where ours does
    return Known(data[: found.start(1)], data[found.end(1) : size])
