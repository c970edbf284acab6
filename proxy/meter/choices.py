"""Chat and text completions, as vLLM, llama.cpp, SGLang and OpenAI answer them."""

from typing import Final

from proxy.meter.reader import CONTENT, NOTHING, USAGE_ONLY, Seen
from proxy.meter.tally import JsonObject, Tally, as_list, as_object, json_object

_RARER = ("tool_calls", "reasoning_content", "reasoning", "function_call", "refusal", "audio")
_ENGINE_NOTES: Final = frozenset({"metrics", "timings", "sglext", "meta_info", "error", "detail"})


class Choices:
    """Reads ``choices`` of events and documents, usage, and the engines' own notes on speculation."""

    text_keys: tuple[bytes, ...] = (b"content", b"reasoning_content", b"reasoning", b"arguments", b"text")

    def __init__(self) -> None:
        self.tally = Tally()
        self._single = True  # one choice only, so usage on every event counts that choice's tokens

    def event(self, payload: bytes) -> Seen:
        """Content is a non-empty delta; a role, ``content: ""`` and ``content: null`` are not."""
        if payload == b"[DONE]":
            return NOTHING
        chunk = json_object(payload)
        choices = chunk.get("choices")
        content = False
        for choice in as_list(choices):
            content = self._choice(as_object(choice)) or content
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.tally.usage = usage
            if content and self._single:
                self.tally.take_growth()
        self._engine_notes(chunk)
        if content:
            return CONTENT
        return USAGE_ONLY if choices == [] and isinstance(usage, dict) else NOTHING

    def _choice(self, choice: JsonObject) -> bool:
        self._single = self._single and not choice.get("index")
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self.tally.finish_reason = finish
        if "speculative_decoding_stats" in choice:
            self.tally.take_speculation(as_object(choice["speculative_decoding_stats"]))
        if choice.get("text"):
            return True
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return False
        return bool(delta.get("content")) or any(delta.get(key) for key in _RARER)

    def _engine_notes(self, told: JsonObject) -> None:
        if _ENGINE_NOTES.isdisjoint(told) and told.get("object") != "error":
            return
        tally = self.tally
        tally.take_speculation(as_object(as_object(told.get("metrics")).get("speculative_decoding")))
        tally.take_speculation(as_object(as_object(told.get("sglext")).get("spec_tokens_details")))
        tally.take_speculation(as_object(told.get("meta_info")))
        if "timings" in told:
            tally.timings = as_object(told["timings"])
        if told.get("error"):
            tally.take_error(told["error"])
        elif told.get("object") == "error":
            tally.take_error(told)
        elif "detail" in told and "choices" not in told:
            tally.take_error(str(told["detail"]))

    def document(self, payload: bytes) -> None:
        """A whole completion, or an error object in any of the engines' shapes."""
        told = json_object(payload)
        for choice in as_list(told.get("choices")):
            self._choice(as_object(choice))
        self.tally.usage = as_object(told.get("usage"))
        self._engine_notes(told)
