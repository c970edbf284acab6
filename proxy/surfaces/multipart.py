"""Just enough of multipart/form-data (RFC 7578) to find one text field without copying the files beside it."""

import re
from collections.abc import Iterator

from proxy.errors import BadRequest

_BOUNDARY = re.compile(r'boundary=(?:"((?:[^"\\]|\\.)+)"|([^;\s]+))', re.IGNORECASE)
_NAME = re.compile(rb';\s*name=(?:"([^"]*)"|([^;\s]+))', re.IGNORECASE)
_LARGEST_HEADER = 16 << 10


def field_span(body: bytes, content_type: str, name: bytes) -> tuple[int, int] | None:
    """Where the value of the first field called ``name`` stands; None when there is none.

    Raises BadRequest when the body does not have the parts its content type announces.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadRequest("The content type multipart/form-data has no boundary.")
    boundary = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    for header, start, end in _parts(body, boundary):
        named = _NAME.search(header)
        if named and (named[1] or named[2]) == name:
            return start, end
    return None


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Header, start and end of each part."""
    at = 0 if body.startswith(boundary) else body.find(b"\r\n" + boundary) + 2
    if at < 2 and not body.startswith(boundary):
        raise BadRequest("The multipart body does not contain its boundary.")
    while not body.startswith(b"--", at + len(boundary)):
        head_end = body.find(b"\r\n\r\n", at, at + _LARGEST_HEADER)
        end = body.find(b"\r\n" + boundary, head_end + 2) if head_end >= 0 else -1
        if end < 0:
            raise BadRequest("The multipart body ends inside a part.")
        yield body[at:head_end], min(head_end + 4, end), end
        at = end + 2
