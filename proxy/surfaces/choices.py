"""What chat and completions share: answers of ``choices``, usage on request in their streams, OpenAI's errors."""

from proxy.meter.choices import Choices
from proxy.splice import splice
from proxy.surfaces import failure
from proxy.surfaces.base import Asked


class OfChoices:
    """A surface but for its name, paths and ``read``; see ``proxy.surfaces.base.Surface``."""

    dialect = "openai"
    routed = True
    reader = Choices

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """See ``Surface``."""
        return splice(body, model, inject_usage and asked.stream, asked.model, asked.has_stream_options)

    def failure_event(self, message: str, code: str) -> bytes:
        """See ``Surface``."""
        return failure.openai(message, code)
