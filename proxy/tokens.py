"""Exact token counts where an encoding is at hand on this machine. Nothing is ever downloaded.

tiktoken fetches its encodings at first use, which hangs or fails on a closed network. So an encoding is
loaded only from a file that is there: one that the operator names, or one in tiktoken's own cache whose
checksum is right (with a wrong one tiktoken would delete and fetch it again).
"""

import base64
import os
import tempfile
from hashlib import sha1, sha256
from pathlib import Path
from typing import NamedTuple

import tiktoken


class _Known(NamedTuple):
    address: str
    sha256: str


_KNOWN = {
    "cl100k_base": _Known(
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": _Known(
        "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}

# How text is cut into pieces before merging; GPT-4's rule, which Llama 3 and Qwen took over but for digits.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LONGEST = 64 << 10
"""Characters beyond which nothing is counted: 5–9 ms per 100 KB is too long for the event loop."""


class Tokenizer:
    """Counts the tokens of a text."""

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self.name = encoding.name
        self._encoding = encoding

    def count(self, text: str) -> int | None:
        """Tokens of ``text``; None when it is too long to be counted here. Never raises.

        Special tokens in user text (``<|endoftext|>``) are ordinary text here: ``encode`` would raise on them.
        """
        return len(self._encoding.encode_ordinary(text)) if len(text) <= LONGEST else None


def load(source: str | Path) -> Tokenizer | None:
    """A tokenizer from a ``.tiktoken`` file or by the name of an encoding in tiktoken's cache; None if it is not there.

    Raises ValueError when the file is there and is no encoding.
    """
    if str(source) in _KNOWN:
        known = _KNOWN[str(source)]
        return Tokenizer(tiktoken.get_encoding(str(source))) if _is_cached(known) else None
    path = Path(source)
    return Tokenizer(_from_file(path)) if path.is_file() else None


def _is_cached(known: _Known) -> bool:
    if os.environ.get("TIKTOKEN_CACHE_DIR") == "":
        return False  # tiktoken's way to switch the cache off
    file = _cache_folder() / sha1(known.address.encode(), usedforsecurity=False).hexdigest()
    return file.is_file() and sha256(file.read_bytes()).hexdigest() == known.sha256


def _cache_folder() -> Path:
    """As in ``tiktoken.load``."""
    named = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    return Path(tempfile.gettempdir()) / "data-gym-cache" if named is None else Path(named)


def _from_file(path: Path) -> tiktoken.Encoding:
    """Read here and not by tiktoken, which would serve a copy from its cache after the file has changed."""
    try:
        pairs = [line.split() for line in path.read_bytes().splitlines() if line.strip()]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except ValueError as problem:
        raise ValueError(f"{path} is not a tiktoken encoding: {problem}") from problem
    # Without every single byte tiktoken's native code would abort on some text.
    if any(bytes((byte,)) not in ranks for byte in range(256)):
        raise ValueError(f"{path} is not a tiktoken encoding: it does not hold all 256 bytes")
    return tiktoken.Encoding(path.stem, pat_str=_PIECES, mergeable_ranks=ranks, special_tokens={})
