"""Reads compressed answers: a copy is decompressed for the meter, the client's bytes go on as they are."""

import zlib

from proxy.meter.base import Facts, Meter
from proxy.meter.stream import StreamMeter

_LARGEST_OUTPUT = 8 << 20  # decompressed bytes of one read; more is no answer of an engine
_CODINGS = ("gzip", "x-gzip", "deflate")
_GZIP, _ZLIB, _BARE = 31, 15, -15  # zlib's wbits
_UNREADABLE = "unreadable"


class Inflating(Meter):
    """A meter around another. What cannot be decompressed is passed on unread; see ``Meter``."""

    __slots__ = ("_coding", "_head", "_inflate", "_inner", "_window")

    def __init__(self, inner: StreamMeter, coding: str) -> None:
        self.first_token_at: float | None = None
        self.events = 0
        self._inner = inner
        self._coding = coding
        self._inflate: zlib._Decompress | None = None
        self._window = _GZIP
        self._head = b""

    def feed(self, data: bytes, at: float) -> bytes:
        """See ``Meter``."""
        plain = self._decompress(data)
        if plain:
            self._inner.feed(plain, at)
            self._tell()
        return data

    def leaves(self, data: bytes) -> bool:
        """See ``Meter``."""
        return True

    def end(self, at: float) -> bytes:
        """See ``Meter``."""
        self._inner.end(at)
        self._tell()
        return b""

    def _tell(self) -> None:
        self.first_token_at, self.events = self._inner.first_token_at, self._inner.events

    def facts(self) -> Facts:
        """See ``Meter``."""
        return self._inner.facts()

    def _decompress(self, data: bytes) -> bytes:
        if self._coding not in _CODINGS:
            return b""
        if self._inflate is None:
            data = self._head + data
            if len(data) < 2:
                self._head = data
                return b""
            self._window = _GZIP if self._coding != "deflate" else _ZLIB if _is_zlib(data) else _BARE
            self._inflate = zlib.decompressobj(self._window)
        try:
            return self._members(self._inflate, data)
        except zlib.error:
            self._coding = _UNREADABLE
            return b""

    def _members(self, inflate: "zlib._Decompress", data: bytes) -> bytes:
        """A gzip body may be several members, one behind the other."""
        out = b""
        while data:
            if inflate.eof:
                inflate = self._inflate = zlib.decompressobj(self._window)
            out += inflate.decompress(data, _LARGEST_OUTPUT - len(out))
            if inflate.unconsumed_tail or len(out) >= _LARGEST_OUTPUT:
                self._coding = _UNREADABLE
                break
            data = inflate.unused_data
        return out


def _is_zlib(data: bytes) -> bool:
    """RFC 9110 means zlib's wrapping by "deflate"; some servers send it bare. RFC 1950: the header is a multiple of 31."""
    return data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
