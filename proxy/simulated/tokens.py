"""A reversible stand-in for a tokenizer: pieces of up to four letters or digits, ids that hold their own text."""

import re
from collections.abc import Iterable
from functools import lru_cache

_PIECE = re.compile(r" ?[A-Za-z_]{1,4}| ?[0-9]{1,3}|.", re.DOTALL)
_MOST_BYTES = 6


def pieces(text: str) -> list[str]:
    """The text cut into tokens; joined they are the text again."""
    return _PIECE.findall(text)


@lru_cache(maxsize=4096)
def count(text: str) -> int:
    """Number of tokens. Remembered, because conversations send the same parts again and again."""
    return len(_PIECE.findall(text))


def token_id(piece: str) -> int:
    """An id below 2⁵³, so that every JSON reader keeps it."""
    return int.from_bytes(b"\x01" + piece.encode("utf-8", "surrogatepass")[: _MOST_BYTES - 1], "big")


def text_of(ids: Iterable[int]) -> str:
    """The text of ids; ids this tokenizer never gave become replacement characters."""
    return b"".join(_bytes(number) for number in ids).decode("utf-8", "replace")


def _bytes(number: int) -> bytes:
    if number < 256 or number.bit_length() > 8 * _MOST_BYTES:
        return b"\xef\xbf\xbd"
    whole = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return whole[1:] if whole[0] == 1 else b"\xef\xbf\xbd"
