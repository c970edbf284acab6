"""Which headers travel on, and how heads are written.

RFC 9110 §7.6.1: hop-by-hop headers and those named by ``Connection`` stay on their hop. Everything else
passes as it came: order, duplicates, spelling.
"""

import http
import re
from collections.abc import Iterable
from typing import NamedTuple

from proxy.wire.client import Headers

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
FORWARDED = frozenset(
    (
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-real-ip",
    )
)
OURS_TO_WRITE = frozenset((b"host", b"content-length", b"expect", b"x-request-id", b"trailer"))
KEYS = frozenset((b"authorization", b"x-api-key"))
NEVER_UPSTREAM = HOP_BY_HOP | OURS_TO_WRITE
REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:/+=@-]{1,128}")


def status_line(status: int, reason: bytes | None = None) -> bytes:
    """``HTTP/1.1 200 OK`` with its line end; the backend's own reason phrase where it sent one."""
    if reason is None:
        try:
            reason = http.HTTPStatus(status).phrase.encode()
        except ValueError:
            reason = b""
    return b"HTTP/1.1 %d %b\r\n" % (status, reason)


def named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Header names that ``Connection`` confines to this hop, lower case."""
    named = [
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    ]
    return frozenset(named)


def first(headers: Headers, wanted: bytes) -> bytes | None:
    """Value of the first header of that (lower-case) name."""
    for name, value in headers:
        if name.lower() == wanted:
            return value
    return None


def origin_form(target: bytes) -> bytes:
    """Path and query of a request target. RFC 9112 §3.2.2: servers must take the absolute form, too."""
    if target[:1] == b"/" or not target[:8].lower().startswith((b"http://", b"https://")):
        return target
    _, slash, rest = target.partition(b"//")[2].partition(b"/")
    return slash + rest if slash else b"/"


class Upstream(NamedTuple):
    """What is constant in every head sent to one backend."""

    host: bytes
    """Host header."""
    base: bytes
    """Path that goes before the surface's own, without a trailing slash."""
    extra: bytes
    """The backend's own headers (its key, configured ones), each with its line end."""
    replaced: frozenset[bytes]
    """Client headers left out: those that ``extra`` sets, and the client's keys unless they are to travel."""


def request_head(
    method: bytes,
    target: bytes,
    headers: Headers,
    upstream: Upstream,
    added: Iterable[bytes],
    dropped: frozenset[bytes],
    length: int | None,
) -> bytes:
    """The head that goes to a backend. ``added`` are whole lines; names in ``headers`` are lower case already."""
    out = [method, b" ", upstream.base, target, b" HTTP/1.1\r\nhost: ", upstream.host, b"\r\n"]
    replaced = upstream.replaced
    for name, value in headers:
        if name in NEVER_UPSTREAM or name in replaced or name in dropped or name.startswith(b"x-draftlane-"):
            continue
        out += (name, b": ", value, b"\r\n")
    out.append(upstream.extra)
    out += added
    if length is not None:
        out.append(b"content-length: %d\r\n" % length)
    out.append(b"\r\n")
    return b"".join(out)


class Framing(NamedTuple):
    """What the backend's headers say of its body, and what may be passed on."""

    lines: list[bytes]
    """Header lines for the client: neither hop-by-hop headers nor framing."""
    length: int | None
    content_type: str
    content_encoding: str


def response_lines(headers: Headers, ours: frozenset[bytes]) -> Framing:
    """Sort a backend's headers. ``ours``: lower-case names the gateway sets itself."""
    lines: list[bytes] = []
    length: int | None = None
    content_type = content_encoding = ""
    confined: frozenset[bytes] = frozenset()
    for name, value in headers:
        low = name.lower()
        if low == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            confined = named_by_connection(headers)
    for name, value in headers:
        low = name.lower()
        if low == b"content-length":
            length = int(value)
            continue
        if low in HOP_BY_HOP or low in ours or low in confined:
            continue
        if low == b"content-type":
            content_type = value.decode("latin-1").lower()
        elif low == b"content-encoding":
            content_encoding = value.decode("latin-1").strip().lower()
        lines.append(b"%b: %b\r\n" % (name, value))
    return Framing(lines, length, content_type, content_encoding)
