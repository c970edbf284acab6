"""Reads compressed answers: a copy is decompressed for the meter, the client's bytes go on as they are."""

import zlib

from proxy.meter.base import Facts
from proxy.meter.stream import StreamMeter

_LARGEST_OUTPUT = 8 << 20  # decompressed bytes of one read; more is no answer of an engine
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Inflating:
    """A meter around another. What cannot be decompressed is passed on unread; see ``Meter``."""

    __slots__ = ("_coding", "_inflate", "_inner", "events", "first_token_at")

    def __init__(self, inner: StreamMeter, coding: str) -> None:
        self.first_token_at: float | None = None
        self.events = 0
        self._inner = inner
        self._coding = coding
        self._inflate = zlib.decompressobj(_WINDOWS[coding]) if coding in _WINDOWS else None

    def feed(self, data: bytes, at: float) -> bytes:
        """See ``Meter``."""
        plain = self._decompress(data)
        if plain:
            self._inner.feed(plain, at)
            self._tell()
        return data

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
        if self._inflate is None:
            return b""
        try:
            return self._members(data)
        except zlib.error:
            if self._coding == "deflate" and data:
                # RFC 9110 means zlib's wrapping by "deflate"; some servers send it bare.
                self._coding, self._inflate = "bare", zlib.decompressobj(-15)
                return self._decompress(data)
            self._inflate = None
            return b""

    def _members(self, data: bytes) -> bytes:
        out = b""
        while self._inflate is not None and data and len(out) < _LARGEST_OUTPUT:
            out += self._inflate.decompress(data, _LARGEST_OUTPUT - len(out))
            if not self._inflate.eof:
                if self._inflate.unconsumed_tail:
                    self._inflate = None
                break
            data = self._inflate.unused_data
            self._inflate = zlib.decompressobj(_WINDOWS.get(self._coding, -15)) if data else self._inflate
        return out
