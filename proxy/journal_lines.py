"""What the journal holds of an event: ``["Arrived", field, …]``, a line each. Apart from the journal, because every request passes
here four times (``deploy/build_hook.py``)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

_encoder: Final = msgspec.json.Encoder()
Fields = tuple[Any, ...]


class Lines:
    """Encodes named tuples under the names they were given."""

    __slots__ = ("_words", "unencodable")

    def __init__(self, names: Mapping[str, type[Fields]]) -> None:
        self._words: dict[type[Fields], Fields] = {kind: (name,) for name, kind in names.items()}
        self.unencodable = 0
        """Events left out because they hold what JSON cannot."""

    def of(self, batch: Sequence[Fields]) -> bytes:
        """A line for each of ``batch``."""
        words = self._words
        lines = [words[type(item)] + item for item in batch]
        try:
            return _encoder.encode_lines(lines)
        except (TypeError, ValueError, OverflowError):
            return b"".join([self._one(line) for line in lines])

    def _one(self, line: Fields) -> bytes:
        try:
            return _encoder.encode(line) + b"\n"
        except (TypeError, ValueError, OverflowError):
            self.unencodable += 1
            return b'["Dropped",1]\n'
