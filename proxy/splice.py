"""The few bytes of a request that must change: another model name, usage asked for. Everything else stays.

Never a re-serialisation: 17-digit seeds, floats, key order, unknown and duplicate keys go on as they came.
"""

import re
from typing import NamedTuple

import msgspec

_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s]+")
_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_VALUE_FOLLOWS = b" \t\r\n,}"
_ASK_USAGE = b'"include_usage":true'
_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
    found: list[Member] = []
    at = _space(body, _opening(body) + 1)
    while body[at : at + 1] != b"}":
        key = _expect(_STRING, body, at)
        colon = _space(body, key.end())
        if body[colon : colon + 1] != b":":
            raise ValueError("no colon after a key")
        start = _space(body, colon + 1)
        name = _text(key[0])
        end = _value_end(body, start, raws.get(name))
        found.append(Member(name, start, end))
        at = _space(body, end)
        if body[at : at + 1] == b",":
            at = _space(body, at + 1)
        elif body[at : at + 1] != b"}":
            raise ValueError("no comma after a member")
    return found


def _opening(body: bytes) -> int:
    at = _space(body, 3 if body.startswith(_BOM) else 0)
    if body[at : at + 1] != b"{":
        raise ValueError("no JSON object")
    return at


def _space(body: bytes, at: int) -> int:
    return _expect(_SPACE, body, at).end()


def _expect(pattern: re.Pattern[bytes], body: bytes, at: int) -> re.Match[bytes]:
    match = pattern.match(body, at)
    if match is None:
        raise ValueError(f"not JSON at byte {at}")
    return match


def _text(quoted: bytes) -> str:
    try:
        return str(msgspec.json.decode(quoted, type=str))
    except msgspec.DecodeError:  # a lone surrogate: no key that anybody looks for
        return quoted.decode("utf-8", "replace")


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


def splice(body: bytes, model: str | None, include_usage: bool) -> bytes:
    """``body`` with ``model`` as its model (None: unchanged) and, if wanted, usage asked for in the stream.

    A body that cannot be walked comes back unchanged: the backend shall judge it.
    """
    if model is None and not include_usage:
        return body
    try:
        known = members(body)
        edits = _model_edits(known, model) if model is not None else []
        if include_usage:
            edits += _usage_edits(body, known)
    except ValueError:
        return body
    return _apply(body, edits)


Edit = tuple[int, int, bytes]


def _apply(body: bytes, edits: list[Edit]) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for start, end, new in sorted(edits):
        pieces += (body[done:start], new)
        done = end
    return b"".join((*pieces, body[done:]))


def _model_edits(known: list[Member], model: str) -> list[Edit]:
    name = msgspec.json.encode(model)
    return [(member.start, member.end, name) for member in known if member.key == "model"]


def _usage_edits(body: bytes, known: list[Member]) -> list[Edit]:
    """Merges into the client's own ``stream_options``; what is no object is left for the backend to refuse."""
    options = [member for member in known if member.key == "stream_options"]
    if not options:
        at = _opening(body) + 1
        return [(at, at, b'"stream_options":{%b}%b' % (_ASK_USAGE, b"," if known else b""))]
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
