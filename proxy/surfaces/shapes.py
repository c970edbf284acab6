"""Request bodies as they are decoded: only what the gateway looks at, and any type anywhere, since engines judge the rest.

msgspec reads these annotations at run time, and mypyc keeps none: that is why they are not beside what reads them, and stay
source in a compiled installation (``deploy/build_hook.py``).
"""

from typing import Any

import msgspec


class Sampling(msgspec.Struct):
    """Fields the OpenAI-like surfaces share. Any type is taken: odd values are for the engine to judge."""

    model: Any = None
    stream: Any = None
    stream_options: Any = msgspec.UNSET
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None
    best_of: Any = None
    temperature: Any = None
    min_p: Any = None
    logit_bias: Any = None
    logprobs: Any = None
    prompt_logprobs: Any = None
    stop: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    grammar: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    use_beam_search: Any = None
    ignore_eos: Any = None
    min_tokens: Any = None


class Part(msgspec.Struct):
    """One part of a message's content, in any of the three dialects."""

    type: Any = None
    text: msgspec.Raw = msgspec.Raw()
    thinking: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()


class Message(msgspec.Struct):
    """One message of a conversation; what it has beyond these is not text."""

    role: Any = None
    content: msgspec.Raw = msgspec.Raw()
    tool_calls: msgspec.Raw = msgspec.Raw()


class ChatBody(Sampling):
    """``/v1/chat/completions``."""

    messages: list[Message] = msgspec.field(default_factory=list)
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    tool_choice: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    reasoning: Any = None
    chat_template_kwargs: Any = None


class CompletionBody(Sampling):
    """``/v1/completions``."""

    prompt: msgspec.Raw = msgspec.Raw()
    suffix: Any = None
    echo: Any = None
    n_predict: Any = None


class MessagesBody(msgspec.Struct):
    """Anthropic's ``/v1/messages``."""

    model: Any = None
    stream: Any = None
    system: msgspec.Raw = msgspec.Raw()
    messages: list[Message] = msgspec.field(default_factory=list)
    max_tokens: Any = None
    temperature: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: Any = None
    stop_sequences: Any = None
    thinking: Any = None
    output_config: Any = None


class ResponseItem(msgspec.Struct):
    """One item of a response's input: a message, a call, its output."""

    type: Any = None
    role: Any = None
    content: msgspec.Raw = msgspec.Raw()
    arguments: msgspec.Raw = msgspec.Raw()
    output: msgspec.Raw = msgspec.Raw()


class ResponseBody(Sampling):
    """``/v1/responses``."""

    input: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    max_output_tokens: Any = None
    text: Any = None
    reasoning: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: Any = None
    top_logprobs: Any = None
    previous_response_id: Any = None
