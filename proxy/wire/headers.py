"""Which headers travel on, and how heads are written.

RFC 9110 §7.6.1: hop-by-hop headers and those named by ``Connection`` stay on their hop. Everything else
passes as it came: order, duplicates, spelling.
"""

import http
import re
from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]

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
BODILESS = (204, 304)
"""Statuses of answers without a body, whatever Content-Length says (RFC 9112 §6.3)."""
REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:/+=@-]{1,128}")


def status_line(status: int, reason: bytes | None = None) -> bytes:
    """``HTTP/1.1 200 OK`` with its line end; the backend's own reason phrase where it sent one."""
    if reason is None:
        try:
            reason = http.HTTPStatus(status).phrase.encode()
        except ValueError:
            reason = b""
    return b"HTTP/1.1 %d %b\r\n" % (status, reason)


def has(headers: Headers, wanted: bytes) -> bool:
    """Whether a header of that (lower-case) name is there."""
    return any(name.lower() == wanted for name, _ in headers)


def named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Header names that ``Connection`` confines to this hop, lower case."""
    values = [value.lower() for name, value in headers if name.lower() == b"connection"]
    return frozenset(token.strip() for value in values for token in value.split(b","))


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


def onward_lines(
    method: bytes, target: bytes, headers: Headers, upstream: Upstream, dropped: frozenset[bytes]
) -> bytes:
    """The lines of a client's head that go to a backend. Names in ``headers`` are lower case already."""
    out = [method, b" ", upstream.base, target, b" HTTP/1.1\r\nhost: ", upstream.host, b"\r\n"]
    replaced = upstream.replaced
    for name, value in headers:
        if name in NEVER_UPSTREAM or name in replaced or name in dropped or name.startswith(b"x-draftlane-"):
            continue
        out += (name, b": ", value, b"\r\n")
    out.append(upstream.extra)
    return b"".join(out)
