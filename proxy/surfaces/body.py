"""Request bodies as JSON: what is refused, and what is taken though a strict parser would not."""

import json
import math
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from proxy.errors import BadRequest
from proxy.splice import members

T = TypeVar("T")
_BOM: Final = b"\xef\xbb\xbf"
_SMALL: Final = 4 << 10
_WINDOW: Final = 2 << 10


def parse(body: bytes, decode: Callable[[bytes], T]) -> T:
    """``body`` through a msgspec decoder.

    Raises BadRequest for an empty body, for what is not JSON in UTF-8 or not an object, for nesting no parser takes,
    and for two ``model`` or ``stream`` keys, where we and the backend might believe different ones (of a body beyond 4 KB, in
    its first and last 2 KB).
    """
    if not body:
        raise BadRequest("The request body is empty; a JSON object was expected.")
    if body.startswith(_BOM):
        body = body[3:]
    try:
        asked = decode(body)
    except RecursionError:
        raise BadRequest("The JSON of the request body is nested too deeply.") from None
    except msgspec.DecodeError as problem:
        asked = _lenient(body, decode, str(problem))
    check_text(body)
    return asked


def check_text(body: bytes) -> None:
    """Raises BadRequest for what is not UTF-8, and for duplicates as in ``parse``."""
    if not body.isascii():
        _as_text(body)
    _refuse_duplicates(body)


def _as_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as problem:
        raise BadRequest(f"The request body is not valid UTF-8 (byte {problem.start}).") from None


def _lenient(body: bytes, decode: Callable[[bytes], T], problem: str) -> T:
    """What Python backends take: NaN, lone surrogates, and any type anywhere; the engine shall judge those."""
    try:
        told = json.loads(_as_text(body), parse_constant=lambda _: None, parse_float=_finite)
    except RecursionError:
        raise BadRequest("The JSON of the request body is nested too deeply.") from None
    except ValueError:
        raise BadRequest(f"The request body is not valid JSON: {problem}") from None
    if not isinstance(told, dict):
        raise BadRequest("The request body must be a JSON object.")
    if "messages" in told:
        listed = told["messages"] if isinstance(told["messages"], list) else []
        told["messages"] = [message for message in listed if isinstance(message, dict)]
    return decode(json.dumps(told, ensure_ascii=False).encode("utf-8", "replace"))


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _refuse_duplicates(body: bytes) -> None:
    """In a large body only its beginning and end are searched; beyond, the last one counts, as it does in engines."""
    outside = body if len(body) <= _SMALL else body[:_WINDOW] + body[-_WINDOW:]
    if outside.count(b'"model"') < 2 and outside.count(b'"stream"') < 2:
        return
    for key in ("model", "stream"):
        if _times(body, key) > 1:
            raise BadRequest(f"The request has more than one '{key}'.", param=key, code="duplicate_key")


def _times(body: bytes, key: str) -> int:
    try:
        return sum(member.key == key for member in members(body))
    except ValueError:
        return 0


def model_name(value: object) -> str | None:
    """The model asked for; None when the request names none. Raises BadRequest when it is not text."""
    if value is None or isinstance(value, str):
        return value or None
    raise BadRequest("'model' must be a string.", param="model")
