"""The Responses and Messages surfaces, as vLLM 0.32 writes them; llama.cpp differs only in one event per token."""

from collections.abc import AsyncIterator
from typing import Any

from proxy.simulated.clockwork import Run
from proxy.simulated.shapes import Call, Shapes, event

_STOPS = {"length": "max_tokens", "stop": "end_turn"}


def _response(call: Call, run: Run, status: str) -> dict[str, Any]:
    done = status != "in_progress"
    job = run.jobs[0]
    cut = done and job.finish == "length"
    usage = {
        "input_tokens": run.prompt_tokens,
        "input_tokens_details": {"cached_tokens": run.cached_tokens},
        "output_tokens": job.tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": run.prompt_tokens + job.tokens,
    }
    return {
        "id": _named(call, "resp_"),
        "created_at": call.created,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "metadata": {"simulated": "true"},
        "model": call.wanted.model,
        "object": "response",
        "output": [_item(call, job.text, "completed")] if done else [],
        "parallel_tool_calls": True,
        "temperature": job.order.temperature,
        "tool_choice": "none",
        "tools": [],
        "top_p": 1.0,
        "status": "incomplete" if cut else status,
        "usage": usage if done else None,
    }


def _named(call: Call, prefix: str) -> str:
    return prefix + call.id.partition("-")[2]


def _part(text: str) -> dict[str, Any]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": []}


def _item(call: Call, text: str | None, status: str) -> dict[str, Any]:
    content = [] if text is None else [_part(text)]
    return {"id": _named(call, "msg_"), "content": content, "role": "assistant", "status": status, "type": "message"}


def response(call: Call, run: Run) -> dict[str, Any]:
    """A whole answer of ``/v1/responses``."""
    return _response(call, run, "completed")


async def response_events(call: Call, run: Run, shapes: Shapes) -> AsyncIterator[bytes]:
    """The stream of ``/v1/responses``."""
    number = 0

    def say(name: str, **fields: object) -> bytes:
        nonlocal number
        number += 1
        return event({**fields, "sequence_number": number - 1, "type": f"response.{name}"}, f"response.{name}")

    where: dict[str, object] = {"item_id": _named(call, "msg_"), "output_index": 0, "content_index": 0}
    yield say("created", response=_response(call, run, "in_progress"))
    yield say("in_progress", response=_response(call, run, "in_progress"))
    yield say("output_item.added", item=_item(call, None, "in_progress"), output_index=0)
    yield say("content_part.added", **where, part=_part(""))
    async for _, pieces, _ in run.steps():
        for text in shapes.events(pieces):
            yield say("output_text.delta", **where, delta=text, logprobs=[])
    text = run.jobs[0].text
    yield say("output_text.done", **where, text=text, logprobs=[])
    yield say("content_part.done", **where, part=_part(text))
    yield say("output_item.done", item=_item(call, text, "completed"), output_index=0)
    yield say("completed", response=_response(call, run, "completed"))


def _reading(run: Run) -> dict[str, Any]:
    cached = run.cached_tokens
    return {
        "input_tokens": run.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
    }


def message(call: Call, run: Run) -> dict[str, Any]:
    """A whole answer of ``/v1/messages``."""
    job = run.jobs[0]
    return {
        "id": call.id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": job.text}],
        "model": call.wanted.model,
        "stop_reason": _STOPS.get(job.finish or "stop"),
        "stop_sequence": None,
        "usage": _reading(run) | {"output_tokens": job.tokens},
    }


async def message_events(call: Call, run: Run, shapes: Shapes) -> AsyncIterator[bytes]:
    """The stream of ``/v1/messages``."""

    def say(name: str, **fields: object) -> bytes:
        return event({"type": name, **fields}, name)

    opened = False
    async for _, pieces, _ in run.steps():
        if not opened:
            start = {
                **message(call, run),
                "content": [],
                "stop_reason": None,
                "usage": _reading(run) | {"output_tokens": 0},
            }
            yield say("message_start", message=start)
            yield say("content_block_start", content_block={"type": "text", "text": ""}, index=0)
            opened = True
        for text in shapes.events(pieces):
            yield say("content_block_delta", delta={"type": "text_delta", "text": text}, index=0)
    yield say("content_block_stop", index=0)
    ended = {"stop_reason": _STOPS.get(run.jobs[0].finish or "stop"), "stop_sequence": None}
    yield say("message_delta", delta=ended, usage=_reading(run) | {"output_tokens": run.jobs[0].tokens})
    yield say("message_stop")
