"""Errors by whose fault they are, and the one table that turns them into what a client sees.

Client: it must change its request. Backend: an engine did not do its part. Gateway: we are full, or
shutting down. The operator's errors (bad configuration) never reach a client and live in ``config``.
Every answer is an OpenAI error object, or an Anthropic one on Anthropic's surfaces, and never tells
an address, a path or a stack trace.
"""

from typing import NamedTuple

import msgspec


class Kind(NamedTuple):
    """How an error appears: HTTP status, ``error.type`` in both dialects, ``error.code``."""

    status: int
    openai_type: str
    anthropic_type: str
    code: str | None


KINDS: dict[str, Kind] = {
    # the client's
    "bad_request": Kind(400, "invalid_request_error", "invalid_request_error", None),
    "unauthorized": Kind(401, "invalid_request_error", "authentication_error", "invalid_api_key"),
    "forbidden": Kind(403, "invalid_request_error", "permission_error", "forbidden"),
    "model_not_found": Kind(404, "invalid_request_error", "not_found_error", "model_not_found"),
    "not_found": Kind(404, "invalid_request_error", "not_found_error", "unknown_url"),
    "method_not_allowed": Kind(405, "invalid_request_error", "invalid_request_error", "method_not_allowed"),
    "length": Kind(400, "invalid_request_error", "invalid_request_error", "bad_content_length"),
    "timeout": Kind(408, "invalid_request_error", "invalid_request_error", "request_timeout"),
    "too_large": Kind(413, "invalid_request_error", "request_too_large", "request_too_large"),
    "context_length": Kind(400, "invalid_request_error", "invalid_request_error", "context_length_exceeded"),
    "unsupported_coding": Kind(415, "invalid_request_error", "invalid_request_error", "unsupported_content_encoding"),
    "uri_too_long": Kind(414, "invalid_request_error", "invalid_request_error", "uri_too_long"),
    "headers_too_large": Kind(431, "invalid_request_error", "invalid_request_error", "headers_too_large"),
    "no_upgrade": Kind(400, "invalid_request_error", "invalid_request_error", "upgrade_not_supported"),
    "not_implemented": Kind(501, "invalid_request_error", "invalid_request_error", "method_not_implemented"),
    "version": Kind(505, "invalid_request_error", "invalid_request_error", "http_version_not_supported"),
    # ours
    "overloaded": Kind(429, "rate_limit_error", "rate_limit_error", "overloaded"),
    "no_backend": Kind(503, "server_error", "overloaded_error", "no_backend"),
    "shutting_down": Kind(503, "server_error", "overloaded_error", "shutting_down"),
    "internal": Kind(500, "server_error", "api_error", "internal_error"),
    # a backend's
    "backend_failed": Kind(502, "server_error", "api_error", "backend_failed"),
    "backend_unreachable": Kind(502, "server_error", "api_error", "backend_unreachable"),
    "backend_garbage": Kind(502, "server_error", "api_error", "backend_protocol_error"),
    "backend_too_slow": Kind(504, "server_error", "api_error", "backend_timeout"),
    "backend_connect_timeout": Kind(504, "server_error", "api_error", "backend_connect_timeout"),
    "backend_silent": Kind(504, "server_error", "api_error", "backend_idle_timeout"),
}


class GatewayError(Exception):
    """An answer of our own. ``kind`` is a key of ``KINDS``."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.code = code if code is not None else KINDS[kind].code
        self.retry_after_seconds = retry_after_seconds

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return KINDS[self.kind].status


class BadRequest(GatewayError):
    """The body is something no backend could take; says what was expected."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__("bad_request", message, param=param, code=code)


FAULT_KINDS: dict[str, tuple[str, str]] = {
    # policies.events.FAULTS → (kind, what the client reads)
    "connect": (
        "backend_unreachable",
        "No backend could be reached. The request was not processed; try again shortly.",
    ),
    "connect-timeout": (
        "backend_connect_timeout",
        "Connecting to the backend took too long. The request was not processed.",
    ),
    "closed": ("backend_failed", "The backend closed the connection before it answered."),
    "garbage": ("backend_garbage", "The backend answered with something that is not valid HTTP."),
    "head-timeout": ("backend_too_slow", "The backend did not start to answer in time."),
    "idle-timeout": ("backend_silent", "The backend fell silent in the middle of its answer."),
    "truncated": ("backend_failed", "The backend's answer ended before it was complete."),
    "status": ("backend_failed", "The backend failed to process the request."),
    "busy": ("no_backend", "All backends are busy. Try again shortly."),
    "stalled": ("backend_silent", "The backend stopped making progress."),
}


def from_fault(fault: str) -> GatewayError:
    """What the client is told when the last backend failed with ``fault`` (see ``policies.events.FAULTS``)."""
    kind, message = FAULT_KINDS[fault]
    retry = 1.0 if KINDS[kind].status == 503 else None
    return GatewayError(kind, message, retry_after_seconds=retry)


def body(error: GatewayError, dialect: str = "openai") -> bytes:
    """The error as a JSON body in ``dialect`` (``openai`` or ``anthropic``)."""
    kind = KINDS[error.kind]
    if dialect == "anthropic":
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kind.anthropic_type, "message": error.message}, "request_id": None}
        )
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": kind.openai_type,
                "param": error.param,
                "code": error.code,
            }
        }
    )
