"""llama.cpp's JSON: one chunk per token, a chunk of its own for the end, timings always."""

from typing import Any

from proxy.simulated.batch import Job
from proxy.simulated.character import Character
from proxy.simulated.clockwork import Run
from proxy.simulated.shapes import FINGERPRINT, Call, text_of


class LlamacppShapes:
    """See ``proxy.simulated.shapes.Shapes``."""

    def __init__(self, character: Character) -> None:
        """For an engine of that character."""
        self.character = character

    def opening(self, call: Call, run: Run, index: int) -> dict[str, Any]:
        """``delta`` with role and null content."""
        return self._chunk(
            call, {"finish_reason": None, "index": index, "delta": {"role": "assistant", "content": None}}
        )

    def chunks(
        self, call: Call, run: Run, index: int, pieces: tuple[str, ...], finish: str | None
    ) -> list[dict[str, Any]]:
        """One chunk per token, then one that says why it ended."""
        made = [self._chunk(call, self._piece(call, index, piece, None)) for piece in pieces]
        if finish is None:
            return made
        end = self._chunk(call, self._piece(call, index, "", finish))
        last = all(job.finish is not None for job in run.jobs)
        return [*made, {**end, "timings": self._timings(run)} if last and not call.wanted.usage else end]

    def closing(self, call: Call, run: Run) -> dict[str, Any] | None:
        """Empty ``choices`` with usage and timings, where usage was asked for."""
        if not call.wanted.usage:
            return None
        return {**self._head(call), "choices": [], "usage": _usage(run), "timings": self._timings(run)}

    def answer(self, call: Call, run: Run) -> dict[str, Any]:
        """The whole answer."""
        choices = [self._choice(call, index, job) for index, job in enumerate(run.jobs)]
        return {"choices": choices, **self._head(call, whole=True), "usage": _usage(run), "timings": self._timings(run)}

    def events(self, pieces: tuple[str, ...]) -> tuple[str, ...]:
        """One event per token."""
        return pieces

    def _head(self, call: Call, whole: bool = False) -> dict[str, Any]:
        kind = "text_completion" if not call.chat else "chat.completion" if whole else "chat.completion.chunk"
        named = {"created": call.created, "id": call.id, "model": call.wanted.model}
        return {**named, "system_fingerprint": FINGERPRINT, "object": kind}

    def _chunk(self, call: Call, choice: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [choice], **self._head(call)}

    def _piece(self, call: Call, index: int, text: str, finish: str | None) -> dict[str, Any]:
        if call.chat:
            return {"finish_reason": finish, "index": index, "delta": {"content": text} if finish is None else {}}
        return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}

    def _choice(self, call: Call, index: int, job: Job) -> dict[str, Any]:
        text = text_of(call, job)
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
        return {"finish_reason": job.finish, "index": index, **said}

    def _timings(self, run: Run) -> dict[str, Any]:
        first, ended = run.first_at or run.started_at, run.ended_at or run.started_at
        done, read = run.completion_tokens, run.prompt_tokens - run.cached_tokens
        timings: dict[str, Any] = {
            "cache_n": run.cached_tokens,
            "prompt_n": read,
            "prompt_ms": (first - run.started_at) * 1e3,
            "predicted_n": done,
            "predicted_ms": (ended - first) * 1e3,
            "predicted_per_token_ms": (ended - first) * 1e3 / max(done, 1),
        }
        drafted, accepted = sum(job.drafted for job in run.jobs), sum(job.accepted for job in run.jobs)
        return timings | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {})


def _usage(run: Run) -> dict[str, Any]:
    prompt, done = run.prompt_tokens, run.completion_tokens
    counted = {"completion_tokens": done, "prompt_tokens": prompt, "total_tokens": prompt + done}
    return {**counted, "prompt_tokens_details": {"cached_tokens": run.cached_tokens}}
