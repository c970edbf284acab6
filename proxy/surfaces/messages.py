"""Anthropic's ``/v1/messages`` and its ``count_tokens``."""

from collections.abc import Callable
from typing import Final

import msgspec

from proxy.meter.messages import Messages as MessagesReader
from proxy.meter.reader import Reader
from proxy.splice import splice
from proxy.surfaces import failure
from proxy.surfaces.base import Asked
from proxy.surfaces.body import model_name
from proxy.surfaces.long_text import parse_prompt
from proxy.surfaces.prompt import Prompt
from proxy.surfaces.shapes import MessagesBody
from proxy.surfaces.traits import EXCERPT, count, effort, kind_of_content, number, tool_features, truth

_decode: Final = msgspec.json.Decoder(MessagesBody).decode


class Messages:
    """See ``proxy.surfaces.base.Surface``."""

    name = "messages"
    paths: tuple[str, ...] = ("/v1/messages", "/messages")
    dialect = "anthropic"
    routed = True
    reader: Callable[[], Reader] | None = MessagesReader

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``."""
        asked, left_out = parse_prompt(body, _decode)
        prompt = Prompt(left_out)
        prompt.add_tools(asked.tools)
        prompt.add_system(asked.system)
        prompt.add_messages(asked.messages)
        features = _features(asked, prompt)
        return Asked(
            model=model_name(asked.model),
            stream=truth(asked.stream),
            prompt_bytes=prompt.size,
            media=prompt.media,
            cap=count(asked.max_tokens),
            temperature=number(asked.temperature),
            features=tuple(sorted(features)),
            content=kind_of_content(prompt.excerpt(EXCERPT), prompt.size, features),
            system=prompt.system,
            fingerprint=prompt.fingerprint,
            prefixes=prompt.borders,
            # Its usage is always told, in the first and last events.
            wants_usage=True,
            sample=prompt.sample,
            text_left_out=left_out is not None,
        )

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """See ``Surface``."""
        return splice(body, model, False, asked.model)

    def failure_event(self, message: str, code: str) -> bytes:
        """See ``Surface``."""
        return failure.anthropic(message, code)


class CountTokens(Messages):
    """The same question without an answer to generate."""

    name = "count_tokens"
    paths: tuple[str, ...] = ("/v1/messages/count_tokens", "/messages/count_tokens")
    routed = False
    reader: Callable[[], Reader] | None = None


def _features(asked: MessagesBody, prompt: Prompt) -> set[str]:
    found = tool_features(bytes(asked.tools), asked.tool_choice)
    if asked.stop_sequences:
        found.add("stop")
    if isinstance(asked.thinking, dict) and asked.thinking.get("type") in ("enabled", "adaptive"):
        found.add("reasoning:on")
    if isinstance(asked.output_config, dict):
        found |= effort(asked.output_config.get("effort"))
    if asked.messages and _answers_a_tool(prompt.whole(asked.messages[-1].content)):
        found.add("last:tool")
    return found


def _answers_a_tool(content: memoryview) -> bool:
    return b'"tool_result"' in bytes(content[:256])
