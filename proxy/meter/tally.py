"""Facts picked out of engine JSON, whatever the dialect; odd types are skipped, never an error."""

import json
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

import msgspec

from policies.make import make
from proxy.meter.base import Facts

JsonObject = Mapping[str, object]
_NOTHING: dict[str, object] = {}
_decode: Final = msgspec.json.Decoder().decode
_MESSAGE_CHARS: Final = 300

_STEPS = ("num_spec_steps", "num_drafts", "spec_verify_ct")
_DRAFTED = ("num_draft_tokens", "spec_draft_token_num")
_ACCEPTED = ("num_accepted_draft_tokens", "num_accepted_tokens", "spec_accept_token_num")
_HISTOGRAM = ("acceptance_histogram", "spec_accept_histogram")
_PROMPT_TOKENS = ("prompt_tokens", "input_tokens")
_COMPLETION_TOKENS = ("completion_tokens", "output_tokens")
_PROMPT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_COMPLETION_DETAILS = ("completion_tokens_details", "output_tokens_details")
_PER_POSITION = ("accepted_per_pos", "num_accepted_tokens_per_pos")


def json_object(data: bytes) -> dict[str, object]:
    """The JSON object in ``data``; empty when it is none. Takes what Python engines write: NaN, lone surrogates."""
    try:
        found = _decode(data)
    except (ValueError, RecursionError):
        found = _lenient(data)
    return found if type(found) is dict else _NOTHING


def _lenient(data: bytes) -> object:
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def as_object(value: object) -> JsonObject:
    """``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else _NOTHING


def as_list(value: object) -> list[object]:
    """``value`` if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_count(value: object) -> int | None:
    """``value`` if it is a non-negative whole number, else None."""
    return value if type(value) is int and value >= 0 else None


def first_count(of: JsonObject, names: Iterable[str]) -> int | None:
    """The first of ``names`` that holds a count."""
    for name in names:
        count = of.get(name)
        if type(count) is int and count >= 0:
            return count
    return None


class Tally:
    """What one answer told so far. Usage and timings may ride on every event, so the last ones are only kept."""

    __slots__ = (
        "_accepted",
        "_cached",
        "_completion",
        "_drafted",
        "_grown_to",
        "_largest_event",
        "_per_position",
        "_prompt",
        "_steps",
        "error",
        "finish_reason",
        "timings",
        "usage",
    )

    def __init__(self) -> None:
        self.usage: JsonObject = _NOTHING
        """OpenAI's usage, of chat (``prompt_tokens`` …) or responses (``input_tokens`` …)."""
        self.timings: JsonObject = _NOTHING
        """llama.cpp's ``timings``."""
        self.finish_reason: str | None = None
        self.error: str | None = None
        self._prompt: int | None = None
        self._cached: int | None = None
        self._completion: int | None = None
        self._steps: int | None = None
        self._drafted: int | None = None
        self._accepted: int | None = None
        self._per_position: tuple[int, ...] = ()
        self._largest_event: int | None = None
        self._grown_to = 0

    def take_growth(self) -> None:
        """An event with content has usage: that tells how many tokens came since the last such event."""
        total = as_count(self.usage.get("completion_tokens"))
        if total is not None:
            self._largest_event = max(self._largest_event or 0, total - self._grown_to)
            self._grown_to = total

    def take_anthropic_usage(self, usage: JsonObject) -> None:
        """Anthropic's usage, told in two parts; ``input_tokens`` leaves out what came from, or went to, the cache."""
        fresh = as_count(usage.get("input_tokens"))
        if fresh is not None:
            read = as_count(usage.get("cache_read_input_tokens"))
            written = as_count(usage.get("cache_creation_input_tokens"))
            self._prompt = fresh + (read or 0) + (written or 0)
            self._cached = self._cached if read is None else read
        told = as_count(usage.get("output_tokens"))
        self._completion = self._completion if told is None else told

    def take_speculation(self, stats: JsonObject) -> None:
        """Per-request counters of vLLM (both shapes) and SGLang; those of several choices add up."""
        steps = first_count(stats, _STEPS)
        if steps is None:
            return
        self._steps = (self._steps or 0) + steps
        accepted = first_count(stats, _ACCEPTED)
        if accepted is None:
            accepted = _from_length(stats, steps)
        self._accepted = _sum(self._accepted, accepted)
        self._drafted = _sum(self._drafted, first_count(stats, _DRAFTED))
        self._take_positions(stats)

    def _take_positions(self, stats: JsonObject) -> None:
        """From a histogram of accepted drafts per step, or from counts per position."""
        for names, cumulate in ((_HISTOGRAM, True), (_PER_POSITION, False)):
            for name in names:
                counts = [count for entry in as_list(stats.get(name)) if (count := as_count(entry)) is not None]
                if counts:
                    found = at_least(counts) if cumulate else tuple(counts)
                    self._per_position = _add(self._per_position, found)
                    return

    def take_error(self, error: object) -> None:
        """An error object, or its bare text."""
        message = as_object(error).get("message", error)
        self.error = message[:_MESSAGE_CHARS] if isinstance(message, str) and message else "error without a message"

    def facts(self, events: int) -> Facts:
        """The facts so far; the meter counts the events. Where usage is missing, ``timings`` step in."""
        usage, timings = self.usage, self.timings
        prompt_tokens = first_count(usage, _PROMPT_TOKENS)
        completion_tokens = first_count(usage, _COMPLETION_TOKENS)
        cached_tokens = _detail(usage, _PROMPT_DETAILS, "cached_tokens")
        generated = as_count(timings.get("predicted_n")) if timings else None
        if prompt_tokens is None:
            prompt_tokens = self._prompt
        if cached_tokens is None:
            cached_tokens = self._cached
        if generated:
            prompt_tokens, cached_tokens = self._read_by_timings(prompt_tokens, cached_tokens)
        if completion_tokens is None:
            completion_tokens = generated if self._completion is None else self._completion
        steps, drafted, accepted = self._speculation(generated)
        return make(
            Facts,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            _detail(usage, _COMPLETION_DETAILS, "reasoning_tokens"),
            self.finish_reason,
            events,
            steps,
            drafted,
            accepted,
            self._per_position,
            False,
            self.error,
            self._largest_event,
        )

    def _read_by_timings(self, prompt: int | None, cached: int | None) -> tuple[int | None, int | None]:
        """Prompt and cached tokens; llama.cpp counts the two apart, and tells of neither before the answer ended."""
        fresh, from_cache = as_count(self.timings.get("prompt_n")), as_count(self.timings.get("cache_n"))
        if fresh is None or from_cache is None:
            return prompt, cached
        read = fresh + from_cache
        return read if prompt is None else prompt, (read and from_cache) if cached is None else cached

    def _speculation(self, generated: int | None) -> tuple[int | None, int | None, int | None]:
        """Steps, drafted, accepted: llama.cpp's ``timings`` unless the engine told otherwise.

        ``draft_n`` is absent when nothing was drafted: that is a measured zero. llama.cpp counts no steps; each
        gives one token of its own, so they are the tokens that were not accepted drafts.
        """
        if self._steps is not None or not generated:
            return self._steps, self._drafted, self._accepted
        accepted = as_count(self.timings.get("draft_n_accepted")) or 0
        return max(generated - accepted, 0), as_count(self.timings.get("draft_n")) or 0, accepted


def at_least(histogram: list[int]) -> tuple[int, ...]:
    """Steps that accepted at least 1, 2, … drafts, from steps by number of drafts accepted (0, 1, 2, …)."""
    return tuple(accumulate(reversed(histogram[1:])))[::-1]


def _from_length(stats: JsonObject, steps: int) -> int | None:
    """SGLang's acceptance length counts the bonus token, so drafts accepted are (length − 1) · steps."""
    length = stats.get("spec_accept_length")
    return round((length - 1) * steps) if isinstance(length, int | float) and 1 <= length < 1e6 else None


def _detail(usage: JsonObject, names: tuple[str, str], name: str) -> int | None:
    """A count of one of usage's inner objects, by the name of either OpenAI surface."""
    details = usage.get(names[0]) or usage.get(names[1])
    return as_count(details.get(name)) if isinstance(details, dict) else None


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else (one or 0) + other


def _add(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    size = max(len(one), len(other))
    padded = (counts + (0,) * (size - len(counts)) for counts in (one, other))
    return tuple(map(sum, zip(*padded, strict=True)))
