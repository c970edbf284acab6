"""Requests whose head came before, on their connection or on another one: taken in without the parser (``proxy.wire.known``)."""

from typing import Final

from proxy.surfaces.base import Surface
from proxy.wire.fast import FastInbound
from proxy.wire.inbound import Head
from proxy.wire.known import Known, known
from proxy.wire.line import NEVER, Line

TRIES: Final = 16
"""Heads of a connection that may differ, one after the other, before it is no longer worth comparing them."""


FAMILIAR: Final = 4
"""Heads that a new connection may begin with."""


class Seen:
    """A head that came before, and what was found in it."""

    __slots__ = ("head", "known", "surface")

    def __init__(self, known: Known, surface: Surface, head: Head) -> None:
        self.known = known
        self.surface = surface
        self.head = head


class Familiar:
    """Heads that connections began with of late: some clients open one for every request."""

    __slots__ = ("heads",)

    def __init__(self) -> None:
        self.heads: list[Seen] = []
        """The last one first."""

    def add(self, seen: Seen) -> None:
        """A connection began with it just now."""
        if self.heads and self.heads[0] is seen:
            return
        mine = seen.known
        others = [o for o in self.heads if o.known.before != mine.before or o.known.after != mine.after]
        self.heads = [seen, *others[: FAMILIAR - 1]]


class Repeats:
    """See the module."""

    __slots__ = ("_familiar", "_line", "_seen", "_to_come", "_tries")

    def __init__(self, line: Line, familiar: Familiar) -> None:
        self._line = line
        self._familiar = familiar
        self._tries = TRIES
        self._seen: Seen | None = None
        """The last head, if its next request may be told by its bytes."""
        self._to_come = 0
        """Bytes of the body of a request that was told by its bytes."""

    def hear(self, data: bytes) -> None:
        """``data_received`` of the connection."""
        line = self._line
        if line.broken:
            return
        try:
            rest = self.take(data)
            if rest is not None:
                line.owner.parse(rest)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is ours
            line.owner.broke(error)
        newest = line.cycle
        if line.in_head:
            line.owner.wait_for_head(len(data))
        elif newest is not None:  # else line ends were all that came (RFC 9112 §2.2), and the wait is the same
            missing = isinstance(newest, FastInbound) and not newest.received
            line.waiting_since = line.loop.time() if missing else NEVER

    def at_rest(self) -> bool:
        """Between two requests of the fast way."""
        cycle = self._line.cycle
        return isinstance(cycle, FastInbound) and cycle.response_complete and cycle.received and not self._line.in_head

    def take(self, data: bytes) -> bytes | None:
        """Take in what needs no parser; what is left for it, None for nothing."""
        if self._to_come:
            return self._go_on(self._line.cycle, data)
        if self._seen is None:
            return self._first(data)
        if not self.at_rest():
            return data
        found = self._seen.known.body_of(data)
        return self._begin(self._seen, found, data) if found is not None and found[1] else data

    def _first(self, data: bytes) -> bytes | None:
        """Of a connection on which nothing was said before."""
        if self._tries > 0 and self._line.cycle is None and not self._line.in_head:
            for seen in self._familiar.heads:
                found = seen.known.body_of(data)
                if found is not None and found[1]:
                    self._seen = seen
                    self._familiar.add(seen)
                    return self._begin(seen, found, data)
        return data

    def _begin(self, seen: Seen, found: tuple[int, int], data: bytes) -> bytes | None:
        start, self._to_come = found
        self._tries = TRIES
        inbound = self._take_in(seen, self._to_come)
        return self._go_on(inbound, memoryview(data)[start:])

    def _take_in(self, seen: Seen, length: int) -> FastInbound:
        line = self._line
        inbound = FastInbound(line, seen.surface, seen.head, not line.door_closed)
        line.cycle = inbound
        line.under_way.append(inbound)
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
        return self._tries > 0 and not self._line.in_head and (self._line.cycle is None or self.at_rest())

    def remember(self, inbound: FastInbound, data: bytes, length: int | None) -> None:
        """The head of the request that ``data`` began with, so that the next one like it is known."""
        self._tries -= 1
        found = None if inbound.expects_continue else known(data, length)
        if found is not None:
            is_first = self._seen is None
            self._seen = Seen(found, inbound.surface, inbound.head)
            if is_first:  # later ones may name their request, and would crowd out the others'
                self._familiar.add(self._seen)
