"""Content codings of request bodies."""

import zlib

from proxy.errors import GatewayError


def without_coding(body: bytes, coding: bytes | None, limit: int) -> bytes:
    """``body`` for looking at: its ``Content-Encoding`` removed, and no larger than ``limit`` bytes.

    Raises GatewayError for codings other than gzip and deflate, broken data, or data that grows beyond the limit.
    """
    if coding is None or coding.strip().lower() in (b"", b"identity"):
        return body
    if coding.strip().lower() not in (b"gzip", b"x-gzip", b"deflate"):
        raise GatewayError("unsupported_coding", "Send the request body uncompressed, or with gzip or deflate.")
    return _inflated(body, limit)


def _inflated(body: bytes, limit: int) -> bytes:
    for window in (47, -15):  # zlib and gzip by their headers; then raw deflate, which some clients send
        machine = zlib.decompressobj(window)
        try:
            data = machine.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(data) > limit:
            raise GatewayError("too_large", f"The request body inflates beyond this gateway's limit of {limit} bytes.")
        if machine.eof:
            return data
    raise GatewayError("bad_request", "The request body is not valid gzip or deflate data.")
