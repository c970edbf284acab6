"""Anthropic's messages: typed events, prompt usage first, output usage last, pings between."""

from proxy.meter.reader import CONTENT, NOTHING, Seen
from proxy.meter.tally import JsonObject, Tally, as_object, json_object

_FINISH = {"max_tokens": "length", "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls"}
_GENERATED = ("text", "thinking", "partial_json")


class Messages:
    """Reads ``content_block_delta`` for content, ``message_start`` and ``message_delta`` for usage."""

    text_keys: tuple[bytes, ...] = (b"text", b"thinking", b"partial_json")

    def __init__(self) -> None:
        self.tally = Tally()

    def event(self, payload: bytes) -> Seen:
        """One event; the type inside the data is trusted, the ``event:`` line only repeats it."""
        told = json_object(payload)
        kind = told.get("type")
        if kind == "content_block_delta":
            delta = as_object(told.get("delta"))
            return CONTENT if any(delta.get(key) for key in _GENERATED) else NOTHING
        if kind == "content_block_start":
            return CONTENT if as_object(told.get("content_block")).get("type") == "tool_use" else NOTHING
        if kind == "message_start":
            self._message(as_object(told.get("message")))
        elif kind == "message_delta":
            self._message(told)
            self._stop(as_object(told.get("delta")))
        elif kind == "error" or told.get("error"):
            self.tally.take_error(told.get("error"))
        return NOTHING

    def _message(self, message: JsonObject) -> None:
        self.tally.take_anthropic_usage(as_object(message.get("usage")))
        self.tally.take_speculation(as_object(as_object(message.get("metrics")).get("speculative_decoding")))
        if "timings" in message:
            self.tally.timings = as_object(message["timings"])

    def _stop(self, holder: JsonObject) -> None:
        reason = holder.get("stop_reason")
        if isinstance(reason, str):
            self.tally.finish_reason = _FINISH.get(reason, reason)

    def document(self, payload: bytes) -> None:
        """A whole message, or an error object."""
        told = json_object(payload)
        self._message(told)
        self._stop(told)
        if told.get("error"):
            self.tally.take_error(told["error"])
