"""What the dialects share of their JSON: who answers, and which parts of an answer each builds in its own way."""

import time
import uuid
from typing import Any, NamedTuple, Protocol

import msgspec

from proxy.simulated.batch import Job
from proxy.simulated.clockwork import Run
from proxy.simulated.wanted import Wanted

FINGERPRINT = "simulated"


class Call(NamedTuple):
    """One request being answered."""

    id: str
    created: int
    wanted: Wanted
    chat: bool


class Shapes(Protocol):
    """A dialect's JSON for chat and text completions."""

    def opening(self, call: Call, run: Run, index: int) -> dict[str, Any]:
        """The role-only chunk of a chat stream."""

    def chunks(
        self, call: Call, run: Run, index: int, pieces: tuple[str, ...], finish: str | None
    ) -> list[dict[str, Any]]:
        """What one step adds to a stream."""

    def closing(self, call: Call, run: Run) -> dict[str, Any] | None:
        """The usage chunk at the end of a stream, where it was asked for."""

    def answer(self, call: Call, run: Run) -> dict[str, Any]:
        """The whole answer of a request that does not stream."""

    def events(self, pieces: tuple[str, ...]) -> tuple[str, ...]:
        """The texts of the stream events in which a step's tokens are sent."""


def call_of(wanted: Wanted, chat: bool, request_id: str | None) -> Call:
    """A request's identity; a client's ``x-request-id`` becomes part of it."""
    prefix = "chatcmpl-" if chat else "cmpl-"
    return Call(prefix + (request_id or uuid.uuid4().hex[:16]), int(time.time()), wanted, chat)


def event(data: dict[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


def text_of(call: Call, job: Job) -> str:
    """An answer's whole text, with the prompt before it where it was to be echoed."""
    return (job.order.prompt if call.wanted.echo and not call.chat else "") + job.text
