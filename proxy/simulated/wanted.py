"""Reads a request body the way the simulated engine's dialect would, and refuses what that engine refuses."""

import json
from typing import Any, NamedTuple

from proxy.simulated import tokens
from proxy.simulated.batch import Order
from proxy.simulated.character import Character

_JSON_FORMATS = ("json_object", "json_schema")
_GUIDES = ("guided_json", "structured_outputs", "json_schema")


class Refusal(Exception):
    """An answer that is an error. ``kind`` is its ``type``, ``fields`` what the dialect adds to it."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", **fields: object) -> None:
        """An error of that status."""
        super().__init__(message)
        self.status, self.message, self.kind, self.fields = status, message, kind, fields


class Wanted(NamedTuple):
    """A request, understood."""

    orders: tuple[Order, ...]
    model: str
    stream: bool = False
    usage: bool = False
    """Usage at the end of a stream."""
    usage_always: bool = False
    """Usage on every chunk."""
    echo: bool = False
    logprobs: bool = False


def parse(body: bytes, character: Character) -> dict[str, Any]:
    """The body as an object. Raises ``Refusal``."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "1 validation error:\n  JSON decode error", "Bad Request", param="body") from None
    if not isinstance(found, dict):
        raise Refusal(400, "1 validation error:\n  Input should be a valid dictionary", "Bad Request", param="body")
    model = found.get("model", character.model)
    if character.dialect == "vllm" and model not in (character.model, None, ""):
        message = f"The model `{model}` does not exist. Valid aliases: {character.model}."
        raise Refusal(404, message, "NotFoundError", param="model")
    return found


def flat(content: object) -> str:
    """The text of a message's content: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(flat(part) for part in content)
    if isinstance(content, dict):
        words = content.get("text", content.get("content"))
        return flat(words) if words is not None else f"[{content.get('type', 'part')}]"
    return ""


def _said(messages: object) -> str:
    lines = messages if isinstance(messages, list) else []
    return "\n".join(f"{one.get('role', 'user')}: {flat(one.get('content'))}" for one in lines if isinstance(one, dict))


def chat(body: dict[str, Any], character: Character) -> Wanted:
    """``/v1/chat/completions``. Raises ``Refusal``."""
    if not isinstance(body.get("messages"), list):
        raise _missing("messages", character)
    if not body["messages"]:
        raise Refusal(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    cap = body.get("max_completion_tokens", body.get("max_tokens"))
    return _wanted(body, [_said(body["messages"])], cap, character)


def completions(body: dict[str, Any], character: Character) -> Wanted:
    """``/v1/completions``: one prompt or several, as text or token ids. Raises ``Refusal``."""
    prompt = body.get("prompt")
    if prompt is None:
        raise _missing("prompt", character)
    many = isinstance(prompt, list) and not all(isinstance(one, int) for one in prompt)
    prompts = [_prompt(one) for one in prompt] if many else [_prompt(prompt)]
    # vLLM's own default here is 16; llama.cpp has none.
    cap = body.get("max_tokens", 16 if character.dialect == "vllm" else None)
    return _wanted(body, prompts, cap, character)


def responses(body: dict[str, Any], character: Character) -> Wanted:
    """``/v1/responses``. Raises ``Refusal``."""
    if "input" not in body:
        raise _missing("input", character)
    said = body["input"] if isinstance(body["input"], str) else _said(body["input"])
    instructions = flat(body.get("instructions"))
    prompt = f"system: {instructions}\n{said}" if instructions else said
    return _wanted(body, [prompt], body.get("max_output_tokens"), character)


def messages(body: dict[str, Any], character: Character) -> Wanted:
    """``/v1/messages`` and its ``count_tokens``. Raises ``Refusal``."""
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise _missing("messages", character)
    system = flat(body.get("system"))
    prompt = (f"system: {system}\n" if system else "") + _said(body["messages"])
    stop = body.get("stop_sequences")
    return _wanted({**body, "stop": stop}, [prompt], body.get("max_tokens"), character)


def _prompt(prompt: object) -> str:
    if isinstance(prompt, list):
        return tokens.text_of(one for one in prompt if isinstance(one, int))
    return prompt if isinstance(prompt, str) else str(prompt)


def _missing(field: str, character: Character) -> Refusal:
    if character.dialect == "llamacpp":
        return Refusal(400, f"'{field}' is required", "invalid_request_error")
    return Refusal(400, "1 validation error:\n  Field required", "Bad Request", param=f"body.{field}")


def _wanted(body: dict[str, Any], prompts: list[str], cap: object, character: Character) -> Wanted:
    if character.dialect == "vllm":
        _check_as_vllm(body, cap, character)
    counts = [max(tokens.count(prompt), 1) for prompt in prompts]
    _check_length(max(counts, default=1), cap, character)
    temperature = body.get("temperature")
    asked = body.get("stream_options")
    options: dict[str, Any] = asked if isinstance(asked, dict) else {}
    answers = body["n"] if isinstance(body.get("n"), int) and body["n"] > 0 else 1
    orders = [
        Order(
            prompt=prompt,
            prompt_tokens=count,
            cap=_cap(cap, count, character),
            temperature=float(temperature) if isinstance(temperature, int | float) else 1.0,
            seed=_seed(body.get("seed"), answer),
            wants_json=_wants_json(body),
            ignore_eos=body.get("ignore_eos") is True,
            least=body["min_tokens"] if isinstance(body.get("min_tokens"), int) else 0,
            stop=_stop(body.get("stop")),
        )
        for prompt, count in zip(prompts, counts, strict=True)
        for answer in range(answers)
    ]
    return Wanted(
        orders=tuple(orders),
        model=character.model,
        stream=body.get("stream") is True,
        usage=options.get("include_usage") is True,
        usage_always=options.get("continuous_usage_stats") is True,
        echo=body.get("echo") is True,
        logprobs=bool(body.get("logprobs")),
    )


def _seed(seed: object, answer: int) -> int | None:
    return seed + answer if isinstance(seed, int) else None


def _stop(stop: object) -> tuple[str, ...]:
    words = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return tuple(word for word in words if isinstance(word, str) and word)


def _wants_json(body: dict[str, Any]) -> bool:
    text = body.get("text")
    formats = [body.get("response_format"), text.get("format") if isinstance(text, dict) else None]
    kinds = [one.get("type") for one in formats if isinstance(one, dict)]
    return any(kind in _JSON_FORMATS for kind in kinds) or any(body.get(guide) for guide in _GUIDES)


def _cap(cap: object, prompt_tokens: int, character: Character) -> int:
    left = max(character.context_tokens - prompt_tokens, 1)
    if not isinstance(cap, int) or isinstance(cap, bool) or cap < 0:
        return left
    return max(min(cap, left), 1)


def _check_length(prompt_tokens: int, cap: object, character: Character) -> None:
    context = character.context_tokens
    if character.dialect == "llamacpp":
        if prompt_tokens >= context:
            message = f"request ({prompt_tokens} tokens) exceeds the available context size ({context} tokens), try increasing it"
            raise Refusal(400, message, "exceed_context_size_error", n_prompt_tokens=prompt_tokens, n_ctx=context)
        return
    if prompt_tokens + (cap if isinstance(cap, int) else 1) > context:
        message = f"This model's maximum context length is {context} tokens. However, your request has {prompt_tokens} input tokens"
        raise Refusal(400, f"{message} and asks for {cap if isinstance(cap, int) else 1} more.", param="input_text")


def _check_as_vllm(body: dict[str, Any], cap: object, character: Character) -> None:
    temperature = body.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise Refusal(
            400, "1 validation error:\n  Input should be a valid number", "Bad Request", param="body.temperature"
        )
    if temperature is not None and temperature < 0:
        raise Refusal(400, f"temperature must be non-negative, got {temperature}.", param="temperature")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int)):
        raise Refusal(
            400, "1 validation error:\n  Input should be a valid integer", "Bad Request", param="body.max_tokens"
        )
    if cap is not None and cap < 1:
        raise Refusal(400, f"max_tokens must be at least 1, got {cap}.", param="max_tokens")
    if cap is not None and cap > character.context_tokens:
        message = f"max_tokens={cap} cannot be greater than max_model_len={character.context_tokens}."
        raise Refusal(400, message + " Please request fewer output tokens.", param="max_tokens")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refusal(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
    if character.depth and (_above_zero(body.get("min_p")) or body.get("logit_bias")):
        raise Refusal(
            400, "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
        )


def _above_zero(value: object) -> bool:
    return isinstance(value, int | float) and value > 0
