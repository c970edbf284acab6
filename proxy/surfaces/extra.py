"""Any other path an operator has opened: passed on, whatever it carries."""

from proxy.errors import BadRequest
from proxy.surfaces.audio import Upload
from proxy.surfaces.base import Asked


class Extra(Upload):
    """Reads the model name where it can; refuses nothing, for nothing is known of such a surface."""

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``."""
        try:
            return super().read(body, content_type)
        except BadRequest:
            return Asked(prompt_bytes=len(body))

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """See ``Surface``."""
        return body if asked.model is None else super().splice(body, asked, model, inject_usage)


def extra(path: str) -> Extra:
    """The surface for a configured path."""
    return Extra("extra", path)
