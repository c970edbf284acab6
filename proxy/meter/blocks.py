"""Server-sent events as bytes: where a block ends, what its data is. The text is never decoded.

Source: the WHATWG HTML standard, §9.2 "Server-sent events": lines end with LF, CR or CRLF; a blank
line dispatches; several ``data`` lines join with LF; a line that starts with a colon is a comment.
"""

import re
from typing import Final

# Atomic groups, or "\r\n" would backtrack into two line ends and count as a blank line.
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_IGNORED_LINES: Final = re.compile(rb"(?:(?::[^\r\n]*)?(?>\r\n|\r|\n))*")
_IGNORED_STARTS = (b":", b"\r", b"\n")
_BOM: Final = b"\xef\xbb\xbf"
_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*[^\s\]]')
_NO_OBJECT: Final = re.compile(rb"(?:(?!data:)[^\r\n]*[\r\n]+)*data:[ \t]*[^\s{]")


def block_end(buffer: bytes, start: int) -> int:
    """Index after the blank line that ends the block at ``start``; −1 when it is not complete."""
    found = _BLANK_LINE.search(buffer, start)
    return found.end() if found else -1


def block_end_lf(buffer: bytes, start: int) -> int:
    """The same for a buffer without any CR, six times as fast."""
    found = buffer.find(b"\n\n", start)
    return found + 2 if found >= 0 else -1


def ignored_until(buffer: bytes, start: int) -> int:
    """Index after the complete comments and empty lines at ``start``: they belong to no event."""
    if buffer[start : start + 1] not in _IGNORED_STARTS:
        return start
    found = _IGNORED_LINES.match(buffer, start)
    return found.end() if found else start


def between(buffer: bytes, start: int, end: int) -> bytes:
    """``buffer[start:end]``, and nothing where the end comes first: there mypyc 2.4 raises SystemError."""
    return buffer[start:end] if start < end else b""


def comments(block: bytes) -> bytes:
    """The comment lines of a block, line ends included."""
    return b"".join(line for line in block.splitlines(keepends=True) if line.startswith(b":"))


def data_of(block: bytes) -> bytes:
    """The data of a block's event, without the fields' names."""
    if block.startswith(b"data:"):
        rest = block[5:].strip()
        if b"\n" not in rest and b"\r" not in rest:
            return rest
    lines = block.removeprefix(_BOM).splitlines()
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")).strip()


def cannot_be_usage_event(part: bytes | bytearray) -> bool:
    """The beginning of a block already shows that it is no usage event: it has choices, or its data is no object.

    True for a beginning is true for the whole, so what is decided does not depend on how the stream was cut.
    """
    return b'"choices":[{' in part or _CHOICES.search(part) is not None or _NO_OBJECT.match(part) is not None
