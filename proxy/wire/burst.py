"""Events that come at the heels of each other, written together.

Where many streams run, a turn of the loop brings events of several. Read one and write it, and the client's process is woken
for each; read all and write all, and it is woken for some, and the kernel's code for either stays in the caches. An event
that comes a moment after the last one is written at once, so that where few streams run nothing is added.
"""

import asyncio
from typing import Final, Protocol

HEELS_SECONDS: Final = 50e-6
"""Several times what reading and writing an event takes."""


class Holds(Protocol):
    """Who has something to write."""

    def write_held(self) -> None:
        """Write it."""


class Burst:
    """Gathers who has something to write until the loop has heard every socket that has something to say."""

    __slots__ = ("_holding", "heard_at")

    def __init__(self) -> None:
        self._holding: list[Holds] = []
        self.heard_at = 0.0
        """When the last event came, of any stream."""

    def add(self, one: Holds) -> None:
        """``write_held`` of ``one`` will be called before the loop listens to its sockets again."""
        if not self._holding:
            asyncio.get_running_loop().call_soon(self._write)
        self._holding.append(one)

    def _write(self) -> None:
        holding, self._holding = self._holding, []
        for one in holding:
            one.write_held()
