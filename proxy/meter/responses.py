"""OpenAI's responses: typed events, usage in the last one."""

from proxy.meter.reader import CONTENT, NOTHING, Seen
from proxy.meter.tally import JsonObject, Tally, as_object, json_object

_LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class Responses:
    """Any ``….delta`` event with something in it is generated; the closing event has usage and status."""

    text_keys: tuple[bytes, ...] = (b"delta",)

    def __init__(self) -> None:
        self.tally = Tally()

    def event(self, payload: bytes) -> Seen:
        """One event; the type inside the data is trusted, the ``event:`` line only repeats it."""
        told = json_object(payload)
        kind = told.get("type")
        if not isinstance(kind, str):
            if told.get("error"):
                self.tally.take_error(told["error"])
            return NOTHING
        if kind.endswith(".delta"):
            return CONTENT if told.get("delta") else NOTHING
        if kind in _LAST:
            self._response(as_object(told.get("response")))
            if "timings" in told:  # llama.cpp puts them beside the response
                self.tally.timings = as_object(told["timings"])
        elif kind == "error":
            self.tally.take_error(told.get("error") or told)
        return NOTHING

    def _response(self, response: JsonObject) -> None:
        tally = self.tally
        tally.usage = as_object(response.get("usage"))
        tally.take_speculation(as_object(as_object(response.get("metrics")).get("speculative_decoding")))
        tally.timings = as_object(response.get("timings"))
        reason = as_object(response.get("incomplete_details")).get("reason")
        status = response.get("status")
        if isinstance(reason, str):
            # The same word as on the chat surface, so that the predictor learns from both.
            tally.finish_reason = "length" if reason == "max_output_tokens" else reason
        elif isinstance(status, str):
            tally.finish_reason = "stop" if status == "completed" else status
        if response.get("error"):
            tally.take_error(response["error"])

    def document(self, payload: bytes) -> None:
        """A whole response object."""
        told = json_object(payload)
        self._response(told)
        if told.get("object") == "error":
            self.tally.take_error(told)
