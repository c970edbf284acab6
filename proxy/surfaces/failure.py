"""How a failure looks inside a running stream. The empty lines end an event that was cut."""

import msgspec

_OVERLOAD = frozenset({"no_backend", "overloaded", "shutting_down"})


def openai(message: str, code: str) -> bytes:
    """What OpenAI's clients raise an APIError for: an event whose data is an error object."""
    return _event(b"", {"error": {"message": message, "type": "server_error", "param": None, "code": code}})


def responses(message: str, code: str) -> bytes:
    """The responses stream's own ``error`` event."""
    told = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
    return _event(b"event: error\n", told)


def anthropic(message: str, code: str) -> bytes:
    """Anthropic's ``error`` event."""
    kind = "overloaded_error" if code in _OVERLOAD else "api_error"
    return _event(b"event: error\n", {"type": "error", "error": {"type": kind, "message": message}})


def _event(name: bytes, data: object) -> bytes:
    return b"\n\n%bdata: %b\n\n" % (name, msgspec.json.encode(data))
