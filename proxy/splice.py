"""The few bytes of a request that must change: another model name, usage asked for. Everything else stays.

Never a re-serialisation: 17-digit seeds, floats, key order, unknown and duplicate keys go on as they came.
"""

import re
from typing import NamedTuple

import msgspec

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_KEY = re.compile(rb'[ \t\r\n]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_AFTER_VALUE = re.compile(rb"[ \t\r\n]*([,}])")
_CLOSING = re.compile(rb"[ \t\r\n]*\}")
_SCALAR = re.compile(rb"[^,\]}\s]+")
_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_VALUE_FOLLOWS = b" \t\r\n,}"
_MODEL = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"]*")')
_SHORT = 16 << 10  # bytes; beyond, the parser finds the key faster than a search does
_ASK_USAGE = b'"include_usage":true'
_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


Edit = tuple[int, int, bytes]


class Member(NamedTuple):
    """One member of a JSON object, and where its value stands."""

    key: str
    start: int
    end: int


def members(body: bytes) -> list[Member]:
    """The members of the outermost object, duplicates included. Raises ValueError when ``body`` is no JSON object."""
    try:
        raws = _raw_members.decode(body.removeprefix(_BOM))
    except (msgspec.DecodeError, RecursionError):
        raws = {}  # NaN and the like; then every value is walked through
    at = _opening(body)
    if _CLOSING.match(body, at):
        return []
    found: list[Member] = []
    more = b","
    while more == b",":
        key = _expect(_KEY, body, at)
        name, start = _text(key[1]), key.end()
        end = _value_end(body, start, raws.get(name))
        found.append(Member(name, start, end))
        after = _expect(_AFTER_VALUE, body, end)
        more, at = after[1], after.end()
    return found


def _opening(body: bytes) -> int:
    """Index after the opening brace."""
    return _expect(_OPENING, body, 0).end()


def _expect(pattern: re.Pattern[bytes], body: bytes, at: int) -> re.Match[bytes]:
    match = pattern.match(body, at)
    if match is None:
        raise ValueError(f"not a JSON object at byte {at}")
    return match


def _text(inside: bytes) -> str:
    """A key from between its quotes."""
    if b"\\" not in inside:
        return inside.decode("utf-8", "replace")
    try:
        return str(msgspec.json.decode(b'"%b"' % inside, type=str))
    except msgspec.DecodeError:  # a lone surrogate: no key that anybody looks for
        return inside.decode("utf-8", "replace")


def _value_end(body: bytes, start: int, raw: msgspec.Raw | None) -> int:
    """The parser knows the length of the last value of each key; of an earlier duplicate only a walk does."""
    if raw is not None:
        value = bytes(raw)
        end = start + len(value)
        if body.startswith(value, start) and body[end : end + 1] in _VALUE_FOLLOWS:
            return end
    first = body[start : start + 1]
    if first == b'"':
        return _expect(_STRING, body, start).end()
    if first not in b"{[":
        return _expect(_SCALAR, body, start).end()
    depth = 0
    for token in _NESTING.finditer(body, start):
        depth += (token[0] in b"{[") - (token[0] in b"}]")
        if depth == 0:
            return token.end()
    raise ValueError("an object or array does not end")


def splice(
    body: bytes, model: str | None, include_usage: bool, old_model: str | None = None, has_stream_options: bool = True
) -> bytes:
    """``body`` with ``model`` as its model (None: unchanged) and, if wanted, usage asked for in the stream.

    ``old_model`` and ``has_stream_options`` are what the reader saw; with them the members need not be walked in the
    usual cases. A body that cannot be walked comes back unchanged: the backend shall judge it.
    """
    if model is None and not include_usage:
        return body
    edits: list[Edit] = []
    try:
        known = None
        if model is not None:
            quick = _lone_model(body, old_model)
            known = members(body) if quick is None else None
            spans = quick or [(member.start, member.end) for member in known or () if member.key == "model"]
            name = msgspec.json.encode(model)
            edits += [(start, end, name) for start, end in spans]
        if include_usage:
            edits += _usage_edits(body, (known or members(body)) if has_stream_options else [])
    except ValueError:
        return body
    return _apply(body, edits)


def _apply(body: bytes, edits: list[Edit]) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for start, end, new in sorted(edits):
        pieces += (body[done:start], new)
        done = end
    return b"".join((*pieces, body[done:]))


def _lone_model(body: bytes, old_model: str | None) -> list[tuple[int, int]] | None:
    """The value's place when a short body has the key but once, and it holds what the reader saw."""
    if old_model is None or len(body) > _SHORT or body.count(b'"model"') != 1 or b"\\u00" in body:
        return None
    found = _MODEL.search(body)
    return [found.span(1)] if found and found[1] == msgspec.json.encode(old_model) else None


def _usage_edits(body: bytes, known: list[Member]) -> list[Edit]:
    """Merges into the client's own ``stream_options``; what is no object is left for the backend to refuse."""
    options = [member for member in known if member.key == "stream_options"]
    if not options:
        at = _opening(body)
        return [(at, at, b'"stream_options":{%b}%b' % (_ASK_USAGE, b"" if _CLOSING.match(body, at) else b","))]
    _, start, end = options[-1]  # as engines do: the last of two counts
    value = body[start:end]
    if value == b"null":
        return [(start, end, b"{%b}" % _ASK_USAGE)]
    if not value.startswith(b"{"):
        return []
    inner = members(value)
    # Asked for without include_usage it does nothing; our asking would put usage on every event of the client's.
    if any(member.key == "continuous_usage_stats" for member in inner):
        return []
    asked = [member for member in inner if member.key == "include_usage"]
    if asked:
        return [(start + member.start, start + member.end, b"true") for member in asked]
    return [(start + 1, start + 1, _ASK_USAGE + (b"," if inner else b""))]
