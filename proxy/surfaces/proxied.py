"""What every surface shares where nothing is generated token by token: the model name, and no meter."""

from typing import Any

import msgspec

from proxy.splice import splice
from proxy.surfaces import failure
from proxy.surfaces.base import Asked
from proxy.surfaces.body import model_name, parse


class _Named(msgspec.Struct):
    model: Any = None


_decode = msgspec.json.Decoder(_Named).decode


class Proxied:
    """A JSON surface that is only passed on; see ``proxy.surfaces.base.Surface``."""

    dialect = "openai"
    routed = False
    reader = None

    def __init__(self, name: str, *paths: str) -> None:
        self.name = name
        self.paths: tuple[str, ...] = paths

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``."""
        return Asked(model=model_name(parse(body, _decode).model), prompt_bytes=len(body))

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """See ``Surface``."""
        return splice(body, model, False, asked.model)

    def failure_event(self, message: str, code: str) -> bytes:
        """See ``Surface``."""
        return failure.openai(message, code)
