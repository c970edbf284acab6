"""What every request touches of its connection.

It is not in ``GatewayProtocol``, because that is a subclass of uvicorn's class, which cannot be compiled (``deploy/build_hook.py``).
"""

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.errors import GatewayError
from proxy.wire.door import Door

if TYPE_CHECKING:
    from proxy.wire.fast import FastInbound

NEVER: Final = math.inf
"""For points in time."""


class Owner(Protocol):
    """The server's protocol: what is rare is its work."""

    flow: Any
    timeout_keep_alive_task: Any

    def parse(self, data: bytes) -> None:
        """Bytes that are not known from before."""

    def wait_for_head(self, size: int) -> None:
        """The head is not complete with these many bytes more."""

    def broke(self, error: Exception) -> None:
        """It was our fault that the bytes could not be worked on."""

    def on_response_complete(self) -> None:
        """The next request may be worked on, or the connection is idle."""


class Line:
    """See the module."""

    __slots__ = (
        "broken",
        "client",
        "cycle",
        "door",
        "door_closed",
        "idle_since",
        "in_head",
        "last_word",
        "loop",
        "owner",
        "pipeline",
        "scheme",
        "transport",
        "under_way",
        "waiting_since",
    )

    def __init__(self, owner: Owner, door: Door, loop: asyncio.AbstractEventLoop) -> None:
        self.owner = owner
        self.door = door
        self.loop = loop
        self.transport: Any = None  # an asyncio.Transport, once the connection is made
        self.client: tuple[str, int] | None = None
        self.scheme = "http"
        self.under_way: list[FastInbound] = []
        """Requests whose answers are not complete."""
        self.cycle: Any = None
        """The newest request: a ``FastInbound``, or uvicorn's ``RequestResponseCycle``, or None."""
        self.pipeline: deque[Any] = deque()
        """Requests that wait behind the one under way, with who serves them; the first one is the last element."""
        self.in_head = False
        """The parser is in the middle of a head."""
        self.door_closed = False
        """No further request on this connection (shutdown, or broken input)."""
        self.broken = False
        """Nothing more is read."""
        self.last_word: GatewayError | None = None
        """For input that is broken behind requests that are not."""
        self.waiting_since = loop.time()
        """When the client began to keep us waiting: for a head since its first byte, for a body since the last one."""
        self.idle_since = self.waiting_since
        """When the last answer was complete. That nothing is under way now does not follow."""

    def answered(self) -> None:
        """A request is answered. Nearly always nothing waits, and the connection is idle from now on."""
        owner = self.owner
        if (
            self.pipeline
            or self.last_word is not None
            or owner.timeout_keep_alive_task is None
            or owner.flow.read_paused
            or self.transport.is_closing()
        ):
            owner.on_response_complete()
        else:
            self.idle_since = self.loop.time()
