"""``/v1/responses``: OpenAI's newer surface, with typed events."""

from typing import Final

import msgspec

from proxy.meter.responses import Responses as Reader
from proxy.splice import splice
from proxy.surfaces import failure
from proxy.surfaces.base import Asked
from proxy.surfaces.body import model_name
from proxy.surfaces.long_text import parse_prompt
from proxy.surfaces.prompt import Prompt
from proxy.surfaces.shapes import ResponseBody, ResponseItem
from proxy.surfaces.traits import (
    EXCERPT,
    count,
    effort,
    format_features,
    kind_of_content,
    number,
    sampling_features,
    tool_features,
    truth,
)

_decode: Final = msgspec.json.Decoder(ResponseBody).decode
_items: Final = msgspec.json.Decoder(list[ResponseItem])


class Responses:
    """See ``proxy.surfaces.base.Surface``."""

    name = "responses"
    paths: tuple[str, ...] = ("/v1/responses", "/responses")
    dialect = "openai"
    routed = True
    reader = Reader

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``."""
        asked, left_out = parse_prompt(body, _decode)
        prompt = Prompt(left_out)
        prompt.add_tools(asked.tools)
        prompt.add_system(asked.instructions)
        last = _add_input(prompt, bytes(asked.input))
        features = _features(asked)
        if last is not None and last.type in ("function_call_output", "custom_tool_call_output"):
            features.add("last:tool")
        return Asked(
            model=model_name(asked.model),
            stream=truth(asked.stream),
            prompt_bytes=prompt.size,
            media=prompt.media,
            cap=count(asked.max_output_tokens),
            temperature=number(asked.temperature),
            features=tuple(sorted(features)),
            content=kind_of_content(prompt.excerpt(EXCERPT), prompt.size, features),
            system=prompt.system,
            fingerprint=prompt.fingerprint,
            prefixes=prompt.borders,
            # Its usage is always told, in the last event.
            wants_usage=True,
            sample=prompt.sample,
            text_left_out=left_out is not None,
        )

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """See ``Surface``."""
        return splice(body, model, False, asked.model)

    def failure_event(self, message: str, code: str) -> bytes:
        """See ``Surface``."""
        return failure.responses(message, code)


def _add_input(prompt: Prompt, raw: bytes) -> ResponseItem | None:
    """Adds a text or a list of items; returns the last item."""
    try:
        items = _items.decode(raw) if raw.startswith(b"[") else None
    except (msgspec.DecodeError, RecursionError):
        prompt.add_structure(raw)
        return None
    if items is None:
        prompt.add(raw)
        prompt.border()
        return None
    for item in items:
        prompt.add(item.content, item.role or "tool")
        prompt.add(item.arguments)
        prompt.add(item.output)
        prompt.border()
    return items[-1] if items else None


def _features(asked: ResponseBody) -> set[str]:
    found = sampling_features(asked)
    found |= format_features(asked.text)
    found |= tool_features(bytes(asked.tools), asked.tool_choice)
    if asked.top_logprobs:
        found.add("logprobs")
    if isinstance(asked.reasoning, dict):
        found |= effort(asked.reasoning.get("effort"))
    if asked.previous_response_id:
        found.add("previous_response")
    return found
