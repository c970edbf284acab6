"""``/v1/chat/completions``."""

from typing import Final

import msgspec

from proxy.surfaces.base import Asked
from proxy.surfaces.body import model_name
from proxy.surfaces.choices import OfChoices
from proxy.surfaces.long_text import LongText, parse_prompt
from proxy.surfaces.prompt import Prompt
from proxy.surfaces.shapes import ChatBody
from proxy.surfaces.traits import (
    EXCERPT,
    count,
    effort,
    kind_of_content,
    number,
    sampling_features,
    tool_features,
    truth,
)

_decode: Final = msgspec.json.Decoder(ChatBody).decode


class Chat(OfChoices):
    """See ``proxy.surfaces.base.Surface``."""

    name = "chat"
    paths: tuple[str, ...] = ("/v1/chat/completions", "/chat/completions")

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``."""
        asked, left_out = parse_prompt(body, _decode)
        prompt = _prompt(asked, left_out)
        features = _features(asked)
        options = asked.stream_options
        return Asked(
            model=model_name(asked.model),
            stream=truth(asked.stream),
            prompt_bytes=prompt.size,
            media=prompt.media,
            cap=count(asked.max_tokens) if asked.max_completion_tokens is None else count(asked.max_completion_tokens),
            n=count(asked.n) or 1,
            temperature=number(asked.temperature),
            features=tuple(sorted(features)) if features else (),
            content=kind_of_content(prompt.excerpt(EXCERPT), prompt.size, features),
            system=prompt.system,
            fingerprint=prompt.fingerprint,
            prefixes=prompt.borders,
            wants_usage=isinstance(options, dict) and truth(options.get("include_usage")),
            has_stream_options=options is not msgspec.UNSET,
            sample=prompt.sample,
            text_left_out=left_out is not None,
        )


def _prompt(asked: ChatBody, left_out: LongText | None) -> Prompt:
    prompt = Prompt(left_out)
    prompt.add_tools(asked.tools or asked.functions)
    prompt.add_messages(asked.messages)
    return prompt


def _features(asked: ChatBody) -> set[str]:
    found = sampling_features(asked)
    if tools := asked.tools or asked.functions:
        found |= tool_features(bytes(tools), asked.tool_choice)
    if asked.prediction:
        found.add("prediction")
    if asked.reasoning_effort:
        found |= effort(asked.reasoning_effort)
    elif isinstance(asked.reasoning, dict):
        found |= effort(asked.reasoning.get("effort"))
    template = asked.chat_template_kwargs
    if isinstance(template, dict) and template.get("enable_thinking") is False:
        found.add("reasoning:off")
    last = asked.messages[-1].role if asked.messages else None
    if last in ("tool", "function", "assistant"):
        found.add("last:assistant" if last == "assistant" else "last:tool")
    return found
