"""The requests of one connection whose head came before: taken in without the parser (``proxy.wire.known``).

Apart from the server's protocol, because this is what nearly every request passes, and that stays source when the rest becomes
machine code (``deploy/build_hook.py``).
"""

from typing import Any, Final, Protocol

from proxy.surfaces.base import Surface
from proxy.wire.fast import Carrier, FastInbound
from proxy.wire.inbound import Head
from proxy.wire.known import Known, known

TRIES: Final = 16
"""Heads of a connection that may differ, one after the other, before it is no longer worth comparing them."""


class Speaker(Carrier, Protocol):
    """The connection, as far as it concerns who looks at its bytes."""

    cycle: Any
    """The newest request: a ``FastInbound``, or uvicorn's, or None."""
    in_head: bool
    """The parser is in the middle of a head."""
    door_closed: bool
    expect_100_continue: bool
    under_way: list[FastInbound]
    """Requests whose answers are not complete."""


class Repeats:
    """See the module."""

    __slots__ = ("_head", "_known", "_speaker", "_surface", "_to_come", "_tries")

    def __init__(self, speaker: Speaker, tries: int = TRIES) -> None:
        self._speaker = speaker
        self._tries = tries
        self._known: Known | None = None
        """The last head whose next request may be told by its bytes."""
        self._surface: Surface | None = None
        self._head: Head | None = None
        self._to_come = 0
        """Bytes of the body of a request that was told by its bytes."""

    def at_rest(self) -> bool:
        """Between two requests of the fast way."""
        cycle = self._speaker.cycle
        return (
            isinstance(cycle, FastInbound) and cycle.response_complete and cycle.received and not self._speaker.in_head
        )

    def take(self, data: bytes) -> bytes | None:
        """Take in what needs no parser; what is left for it, None for nothing."""
        if self._to_come:
            return self._go_on(self._speaker.cycle, data)
        if self._known is None or not self.at_rest():
            return data
        found = self._known.body_of(data)
        if found is None or not found[1]:
            return data
        start, length = found
        self._tries, self._to_come = TRIES, length
        inbound = self._begin(length)
        return self._go_on(inbound, memoryview(data)[start:])

    def _begin(self, length: int) -> FastInbound:
        speaker = self._speaker
        assert self._surface is not None
        assert self._head is not None
        inbound = FastInbound(speaker, self._surface, self._head, not speaker.door_closed)
        speaker.expect_100_continue = False
        speaker.cycle = inbound
        speaker.under_way.append(inbound)
        inbound.admit(length)
        return inbound

    def _go_on(self, inbound: FastInbound, data: bytes | memoryview) -> bytes | None:
        """More of a body that the parser does not see."""
        self._to_come -= len(data)
        if self._to_come > 0:
            inbound.take(data)
            return None
        rest, self._to_come = self._to_come, 0
        inbound.take(data[:rest] if rest else data)
        inbound.complete()
        return bytes(data[rest:]) if rest else None

    def may_begin(self) -> bool:
        """Whether what the parser reads next may be the beginning of a request worth to ``remember``."""
        return self._tries > 0 and not self._speaker.in_head and (self._speaker.cycle is None or self.at_rest())

    def remember(self, inbound: FastInbound, data: bytes, length: int | None) -> None:
        """The head of the request that ``data`` began with, so that the next one like it is known."""
        self._tries -= 1
        found = None if self._speaker.expect_100_continue else known(data, length)
        if found is not None:
            self._known, self._surface, self._head = found, inbound.surface, inbound.head
