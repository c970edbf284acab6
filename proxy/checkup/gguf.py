"""Reads the key-value head of a GGUF file, and nothing behind it.

Format: ``docs/gguf.md`` of the ggml project. Little endian: magic, version, number of tensors, number of pairs, then
pairs of key, type and value. Tensors are never touched, so a 400 GB model costs some megabytes.
"""

import struct
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 512 * 1024 * 1024
"""More than any head has (a vocabulary of 262,144 with scores and types takes 7 MB)."""
MOST_PAIRS = 65_536
MOST_ITEMS = 16_777_216
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
Value = str | int | float | bool | list[object]


class UnreadableError(Exception):
    """A file is not what it should be; the message says why, with the path."""


class _Head:
    """A file that refuses to be read for ever."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path, self._left = file, path, MOST_BYTES

    def take(self, count: int) -> bytes:
        """Exactly ``count`` bytes. Raises UnreadableError."""
        if count > self._left:
            raise UnreadableError(f"{self._path}: the head says it is longer than {MOST_BYTES} bytes")
        found = self._file.read(count)
        if len(found) < count:
            raise UnreadableError(f"{self._path}: cut off in the head")
        self._left -= count
        return found

    def number(self, code: str) -> int | float | bool:
        """One scalar of a struct format."""
        (value,) = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))
        return value  # type: ignore[no-any-return] # struct cannot say what it unpacks

    def text(self) -> str:
        """A length and as many bytes of UTF-8; broken ones (byte tokens) are kept apart by surrogates."""
        return self.take(int(self.number("Q"))).decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Value:
        """A value of a type code. Raises UnreadableError for codes that do not exist."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise UnreadableError(f"{self._path}: value type {kind} does not exist")
        return self.number(_SCALARS[kind])

    def array(self) -> list[object]:
        """Items of one type; scalars at one stroke."""
        kind, count = int(self.number("I")), int(self.number("Q"))
        if count > MOST_ITEMS or kind == _ARRAY:
            raise UnreadableError(f"{self._path}: an array of {count} items of type {kind}")
        if kind in _SCALARS:
            code = f"<{count}{_SCALARS[kind]}"
            return list(struct.unpack(code, self.take(struct.calcsize(code))))
        return [self.value(kind) for _ in range(count)]


def read_head(path: Path) -> dict[str, Value]:
    """All key-value pairs of a GGUF file. Raises UnreadableError or OSError."""
    with path.open("rb") as file:
        return parse_head(file, str(path))


def parse_head(file: BinaryIO, name: str) -> dict[str, Value]:
    """The same from an open file; ``name`` is for the messages of UnreadableError."""
    head = _Head(file, name)
    if head.take(4) != b"GGUF":
        raise UnreadableError(f"{name}: not a GGUF file")
    version = int(head.number("I"))
    if version not in (2, 3):
        raise UnreadableError(f"{name}: GGUF version {version} is not known here")
    head.number("Q")
    pairs = int(head.number("Q"))
    if pairs > MOST_PAIRS:
        raise UnreadableError(f"{name}: {pairs} pairs in the head")
    return dict(_pair(head) for _ in range(pairs))


def _pair(head: _Head) -> tuple[str, Value]:
    key = head.text()
    return key, head.value(int(head.number("I")))
