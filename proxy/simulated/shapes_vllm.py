"""vLLM's JSON: one chunk per engine step, usage on request, acceptance on the answer or the usage chunk."""

from typing import Any

from proxy.simulated.batch import Job
from proxy.simulated.character import Character
from proxy.simulated.clockwork import Run
from proxy.simulated.shapes import FINGERPRINT, Call, text_of
from proxy.simulated.tokens import pieces as cut


class VllmShapes:
    """See ``proxy.simulated.shapes.Shapes``."""

    def __init__(self, character: Character) -> None:
        """For an engine of that character."""
        self.character = character

    def opening(self, call: Call, run: Run, index: int) -> dict[str, Any]:
        """``delta`` with role and empty content."""
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        chunk = self._chunk(call, run, choice)
        return {**chunk, "prompt_token_ids": None, "prompt_text": None}

    def chunks(
        self, call: Call, run: Run, index: int, pieces: tuple[str, ...], finish: str | None
    ) -> list[dict[str, Any]]:
        """One chunk with everything the step accepted."""
        text = "".join(pieces)
        choice: dict[str, Any] = {"index": index} | ({"delta": {"content": text}} if call.chat else {"text": text})
        choice |= {"logprobs": _logprobs(call, pieces), "finish_reason": finish}
        if finish is not None or not call.chat:
            choice["stop_reason"] = None
        choice["token_ids"] = None
        chunk = self._chunk(call, run, choice)
        if finish is not None and not call.wanted.usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return [chunk]

    def closing(self, call: Call, run: Run) -> dict[str, Any] | None:
        """Empty ``choices`` with usage, and with the acceptance where it is switched on."""
        if not call.wanted.usage:
            return None
        chunk = {**self._head(call), "choices": [], "usage": self._usage(run), "system_fingerprint": FINGERPRINT}
        metrics = self._metrics(run)
        return {**chunk, "metrics": metrics} if metrics else chunk

    def answer(self, call: Call, run: Run) -> dict[str, Any]:
        """The whole answer."""
        return {
            **self._head(call, whole=True),
            "choices": [self._choice(call, index, job) for index, job in enumerate(run.jobs)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self._usage(run),
            "kv_transfer_params": None,
            "metrics": self._metrics(run),
        }

    def events(self, pieces: tuple[str, ...]) -> tuple[str, ...]:
        """One event per step."""
        return ("".join(pieces),)

    def _head(self, call: Call, whole: bool = False) -> dict[str, Any]:
        kind = "text_completion" if not call.chat else "chat.completion" if whole else "chat.completion.chunk"
        return {"id": call.id, "object": kind, "created": call.created, "model": call.wanted.model}

    def _chunk(self, call: Call, run: Run, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head(call), "choices": [choice]}
        return {**chunk, "usage": _counted(run)} if call.wanted.usage_always else chunk

    def _choice(self, call: Call, index: int, job: Job) -> dict[str, Any]:
        text = text_of(call, job)
        said = {"message": {"role": "assistant", "content": text, "refusal": None, "reasoning": None}}
        choice: dict[str, Any] = {"index": index} | (said if call.chat else {"text": text})
        logprobs = _logprobs(call, tuple(cut(job.text)))
        return choice | {"logprobs": logprobs, "finish_reason": job.finish, "stop_reason": None, "token_ids": None}

    def _usage(self, run: Run) -> dict[str, Any]:
        return _counted(run) | {
            "prompt_tokens_details": {"cached_tokens": run.cached_tokens, "created_cache_tokens": 0}
        }

    def _metrics(self, run: Run) -> dict[str, Any] | None:
        if not self.character.request_metrics or len(run.jobs) > 1:
            return None
        first, ended = run.first_at or run.started_at, run.ended_at or run.started_at
        job, decoding = run.jobs[0], ended - first
        return {
            "time_to_first_token_ms": (first - run.started_at) * 1e3,
            "generation_time_ms": decoding * 1e3,
            "queue_time_ms": 0.0,
            "mean_itl_ms": decoding * 1e3 / max(job.tokens - 1, 1),
            "tokens_per_second": job.tokens / decoding if decoding else None,
            "speculative_decoding": self._speculation(job),
        }

    def _speculation(self, job: Job) -> dict[str, Any] | None:
        if not self.character.depth:
            return None
        histogram = job.histogram + [0] * (self.character.depth + 1 - len(job.histogram))
        return {
            "mean_acceptance_length": 1 + job.accepted / job.steps if job.steps else None,
            "draft_acceptance_rate": job.accepted / job.drafted if job.drafted else None,
            "acceptance_histogram": histogram,
            "num_spec_steps": job.steps,
            "num_accepted_draft_tokens": job.accepted,
            "num_draft_tokens": job.drafted,
            "num_spec_tokens": self.character.depth,
        }


def _counted(run: Run) -> dict[str, Any]:
    prompt, done = run.prompt_tokens, run.completion_tokens
    return {"prompt_tokens": prompt, "total_tokens": prompt + done, "completion_tokens": done}


def _logprobs(call: Call, pieces: tuple[str, ...]) -> dict[str, Any] | None:
    if not call.wanted.logprobs:
        return None
    if call.chat:
        tokens = [
            {"token": piece, "logprob": -0.1, "bytes": list(piece.encode()), "top_logprobs": []} for piece in pieces
        ]
        return {"content": tokens}
    return {"tokens": list(pieces), "token_logprobs": [-0.1] * len(pieces), "top_logprobs": None, "text_offset": []}
