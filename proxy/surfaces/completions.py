"""``/v1/completions``: text in, text out; prompts as text, lists of texts, token ids, lists of token ids."""

from typing import Final

import msgspec

from proxy.surfaces.base import Asked
from proxy.surfaces.body import model_name
from proxy.surfaces.choices import OfChoices
from proxy.surfaces.long_text import parse_prompt
from proxy.surfaces.prompt import Prompt
from proxy.surfaces.shapes import CompletionBody
from proxy.surfaces.traits import COUNTABLE, EXCERPT, count, kind_of_content, number, sampling_features, truth

_BYTES_PER_TOKEN: Final = 4


_decode: Final = msgspec.json.Decoder(CompletionBody).decode
_ids: Final = msgspec.json.Decoder(list[int])
_id_lists: Final = msgspec.json.Decoder(list[list[int]])
_texts: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Completions(OfChoices):
    """See ``proxy.surfaces.base.Surface``."""

    name = "completions"
    paths: tuple[str, ...] = ("/v1/completions", "/completions")

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``."""
        asked, left_out = parse_prompt(body, _decode)
        prompt = Prompt(left_out)
        tokens, prompts = _measure(prompt, bytes(asked.prompt))
        features = _features(asked)
        options = asked.stream_options
        return Asked(
            model=model_name(asked.model),
            stream=truth(asked.stream),
            prompt_bytes=prompt.size,
            prompt_tokens=tokens,
            cap=count(asked.n_predict) if asked.max_tokens is None else count(asked.max_tokens),
            n=min((count(asked.n) or 1) * max(prompts, 1), COUNTABLE),
            temperature=number(asked.temperature),
            features=tuple(sorted(features)),
            content=kind_of_content(prompt.excerpt(EXCERPT), prompt.size, features),
            fingerprint=prompt.fingerprint,
            prefixes=prompt.borders,
            wants_usage=isinstance(options, dict) and truth(options.get("include_usage")),
            has_stream_options=options is not msgspec.UNSET,
            sample=prompt.sample,
            text_left_out=left_out is not None,
        )


def _measure(prompt: Prompt, raw: bytes) -> tuple[int | None, int]:
    """Adds the prompt; returns its exact token count where the client sent ids, and how many prompts there are."""
    if not raw.startswith(b"["):
        prompt.add(raw)
        prompt.border()
        return None, 1
    lengths = _id_lengths(raw)
    if lengths is not None:
        tokens = sum(lengths)
        prompt.add_structure(raw)
        prompt.size = tokens * _BYTES_PER_TOKEN
        prompt.border()
        return tokens, len(lengths)
    try:
        texts = _texts.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        texts = []
    for text in texts:
        prompt.add(text)
        prompt.border()
    return None, len(texts)


def _id_lengths(raw: bytes) -> list[int] | None:
    """Number of token ids of each prompt; None when the prompts are texts."""
    second = raw[1:].lstrip()[:1]
    try:
        if second == b"[":
            return [len(ids) for ids in _id_lists.decode(raw)]
        return [len(_ids.decode(raw))] if second.isdigit() else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _features(asked: CompletionBody) -> set[str]:
    found = sampling_features(asked)
    if asked.suffix:
        found.add("suffix")
    if asked.echo:
        found.add("echo")
    return found
