"""What a model has to read: how much, how it begins, and whether it was seen before.

Contents stay raw JSON strings: their bytes are counted and fingerprinted without being decoded. A
fingerprint is a rolling CRC-32 with the size beside it, 52 bits in all so that any JSON reader keeps
it exact, and the same in every process, which Python's ``hash`` is not. Two prompts that share one, by
chance (1 in 2³² at equal size) or because they are long, equally long and differ only deep inside a text,
cost an estimate, never an answer.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from zlib import crc32

import msgspec

from proxy.surfaces.long_text import LongText
from proxy.surfaces.shapes import Message, Part

_TEXTUAL: Final = frozenset(
    {"text", "input_text", "output_text", "refusal", "thinking", "redacted_thinking", "reasoning"}
)
_STRUCTURED: Final = frozenset(
    {
        "tool_use",
        "tool_result",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "server_tool_use",
        "web_search_tool_result",
        "item_reference",
    }
)
_HASHED_WHOLE: Final = 32 << 10
_END: Final = 8 << 10
_SLICE: Final = 1 << 10
_SLICES: Final = 16
"""Bytes, but for the number of slices. A longer text is hashed in part: all of 100 KB would cost a tenth of the whole request."""
_SAMPLE: Final = 16 << 10
_SYSTEM = ("system", "developer")
_ROLE_SALTS: Final = {
    role: crc32(role.encode()) for role in ("system", "developer", "user", "assistant", "tool", "function")
}
_FIRST_BORDERS: Final = 4
_LAST_BORDERS: Final = 12
_QUOTE: Final = ord('"')
_BRACKET: Final = ord("[")
_NULL: Final = memoryview(b"null")


_parts: Final = msgspec.json.Decoder(list[Part])
_string: Final = msgspec.json.Decoder(str)


class Prompt:
    """Adds up a prompt piece by piece, in the order in which the model reads it."""

    __slots__ = ("_borders", "_crc", "_left_out", "_texts", "media", "size", "system")

    def __init__(self, left_out: LongText | None = None) -> None:
        """``left_out``: what the parser did not see of the body."""
        self._left_out = left_out
        self.size = 0
        """Bytes of text so far."""
        self.media = 0
        """Parts that are no text: images, audio, files."""
        self.system = 0
        """Fingerprint of tools and system prompt, 0 for none."""
        self._crc = 0
        self._texts: list[memoryview] = []
        self._borders: list[tuple[int, int]] = []

    def add(self, raw: msgspec.Raw | bytes, role: object = "") -> None:
        """Content in raw JSON: a string, a list of parts, anything else counted by its length."""
        data = memoryview(raw) if self._left_out is None else self.whole(raw)
        size = len(data)
        crc = self._crc ^ (_ROLE_SALTS.get(role, 0) if type(role) is str else 0)
        self._crc = crc32(data, crc) if size <= _HASHED_WHOLE else _checksum(data, crc)
        if size and data[0] == _QUOTE:  # nearly always; the rest is in ``_measure``, too
            self.size += size - 2
            self._texts.append(data)
        else:
            self._measure(raw, data)

    def whole(self, raw: msgspec.Raw | bytes) -> memoryview:
        """As it stands in the body."""
        data = memoryview(raw)
        return data if self._left_out is None else self._left_out.of(data)

    def _measure(self, raw: msgspec.Raw | bytes, data: memoryview) -> None:
        """``data`` is the whole of ``raw``."""
        first = data[0] if data else 0
        if first == _QUOTE:
            self.size += len(data) - 2
            self._texts.append(data)
        elif first == _BRACKET:
            self._measure_parts(raw, data)
        elif data != _NULL:
            self.size += len(data)

    def _measure_parts(self, raw: msgspec.Raw | bytes, data: memoryview) -> None:
        try:
            parts = _parts.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            self.size += len(data)
            return
        for part in parts:
            kind = part.type if isinstance(part.type, str) else "text"
            if kind in _TEXTUAL:
                self._measure_part(part.text or part.thinking)
            elif kind in _STRUCTURED:
                self._measure_part(part.content)
            else:
                self.media += 1

    def _measure_part(self, raw: msgspec.Raw) -> None:
        self._measure(raw, self.whole(raw))

    def add_structure(self, raw: msgspec.Raw | bytes) -> None:
        """Raw JSON that the model reads as such (tool calls, tool definitions)."""
        data = self.whole(raw)
        if data and data != _NULL:
            self.size += len(data)
            self._crc = _checksum(data, self._crc)

    def add_tools(self, tools: msgspec.Raw) -> None:
        """Tool definitions. They come first: chat templates put them before the messages."""
        if tools:
            self.add_structure(tools)
            self.system = self.fingerprint

    def add_system(self, raw: msgspec.Raw) -> None:
        """A system prompt that stands outside the messages."""
        if raw:
            self.add(raw, "system")
            self.system = self.fingerprint

    def add_messages(self, messages: list[Message]) -> None:
        """A conversation, with a border after each message; its first messages may be a system prompt."""
        at_start = True
        borders = self._borders
        for message in messages:
            role = message.role
            self.add(message.content, role)
            if message.tool_calls:
                self.add_structure(message.tool_calls)
            fingerprint = (self._crc << 20 | self.size & 0xFFFFF) or 1
            borders.append((fingerprint, self.size))
            if at_start:
                at_start = role in _SYSTEM
                if at_start:
                    self.system = fingerprint

    @property
    def fingerprint(self) -> int:
        """Of everything added so far; never 0."""
        return (self._crc << 20 | self.size & 0xFFFFF) or 1

    def border(self) -> None:
        """A message ends here: what came so far may be the beginning of a later prompt."""
        self._borders.append((self.fingerprint, self.size))

    @property
    def borders(self) -> tuple[tuple[int, int], ...]:
        """Of long conversations the first few borders (shared by sessions) and the last (shared by turns)."""
        if len(self._borders) <= _FIRST_BORDERS + _LAST_BORDERS:
            return tuple(self._borders)
        return (*self._borders[:_FIRST_BORDERS], *self._borders[-_LAST_BORDERS:])

    @property
    def sample(self) -> Callable[[], str]:
        """Makes the whole text where it is short enough to be counted, else nothing. Holds on to copies, not to the body."""
        return str if self.size > _SAMPLE else partial(_decoded, [bytes(text) for text in self._texts])

    def excerpt(self, size: int) -> bytes:
        """Up to ``size`` raw bytes from the beginning and the end of the last text, for guessing what it is about."""
        if not self._texts:
            return b""
        last = self._texts[-1]
        return bytes(last) if len(last) <= size else bytes(last[: size // 2]) + bytes(last[-size // 2 :])


def _decoded(texts: list[bytes]) -> str:
    try:
        return "\n".join([_string.decode(text) for text in texts])
    except msgspec.DecodeError:
        return ""


def _checksum(data: memoryview, before: int) -> int:
    """CRC-32, going on from ``before``. Of a long text: its ends, where questions and dates stand, slices from between, its length."""
    size = len(data)
    if size <= _HASHED_WHOLE:
        return crc32(data, before)
    step = (size - 2 * _END) // _SLICES
    slices = [data[at : at + _SLICE] for at in range(_END, size - _END, step)]
    return crc32(b"".join((data[:_END], *slices, data[-_END:], b"%d" % size)), before)
