"""A bounded queue from the event loop to a thread that writes.

What leaves the gateway for a disk or a terminal must never hold up a request, and must never grow
without end when the other side is slow. So: append costs a list append, a thread writes, and what does
not fit is dropped, counted, and marked at the very place where it is missing.

Items are packed (encoded) a slice at a time by whoever comes first: the appender when a slice is full,
the thread when it wakes. The thread of a busy gateway thus only writes; encoding there made it fight for
the interpreter lock, which cost six times the encoding itself (65 of 470 µs a request, in futexes).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Packed = TypeVar("Packed")

log = logging.getLogger(__name__)

SLICE = 128
"""Items packed at once. Packing holds up the loop, so a slice has to stay well below a millisecond."""
AT_ONCE = 64
"""Slices written at once."""


class Dropped(NamedTuple):
    """``missing`` items should have been here: the queue was full."""

    missing: int


class Outbox(Generic[Item, Packed]):
    """Appends from one thread, writes from another.

    ``pack`` makes of a slice what ``write`` takes. ``write`` gets packed slices in order, at first none at all, and must
    take all or nothing: when it raises ``OSError`` the same are offered again after ``retry_seconds``, and meanwhile the
    queue fills and then drops.
    """

    def __init__(
        self,
        name: str,
        pack: Callable[[Sequence[Item | Dropped]], Packed],
        write: Callable[[Sequence[Packed]], None],
        bound: int = 65536,
        pause_seconds: float = 0.1,
        retry_seconds: float = 1.0,
        complain_seconds: float = 60.0,
    ) -> None:
        self.dropped = 0
        """Items lost because the queue was full, or because the last write failed at closing."""
        self.failures = 0
        """Writes that failed, retries included."""
        self._name = name
        self._pack = pack
        self._write = write
        self._bound = bound
        self._pause_seconds = pause_seconds
        self._retry_seconds = retry_seconds
        self._complain_seconds = complain_seconds
        self._fresh: list[Item | Dropped] = []
        self._packed: deque[tuple[int, Packed]] = deque()
        """(Items, slice), oldest first; those being written are still in it."""
        self._waiting = 0
        """Items in ``_packed``."""
        self._missing = 0
        self._packing = threading.Lock()
        self._quiet_until = 0.0
        self._closing = threading.Event()
        self._writer: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._fresh) + self._waiting

    def append(self, item: Item) -> None:
        """Queue ``item``, or count it as dropped. Never waits, never fails; call it from one thread."""
        fresh = self._fresh
        if len(fresh) + self._waiting >= self._bound:
            self.dropped += 1
            self._missing += 1
            return
        if self._missing:
            fresh.append(Dropped(self._missing))
            self._missing = 0
        fresh.append(item)
        if len(fresh) >= SLICE:
            self._pack_fresh()

    def extend(self, items: Sequence[Item]) -> None:
        """``append`` each of ``items``."""
        fresh = self._fresh
        if self._missing or len(fresh) + self._waiting + len(items) > self._bound:
            for item in items:
                self.append(item)
            return
        fresh += items
        while len(fresh) >= SLICE:
            self._pack_fresh()

    def start(self) -> None:
        """Start the writing thread (after a fork, not before: threads do not survive one)."""
        self._writer = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._writer.start()

    def close(self, wait_seconds: float = 5.0) -> None:
        """Write what is queued and end the thread. What cannot be written within ``wait_seconds`` is lost."""
        if self._writer is None:
            return
        if self._missing:
            self._fresh.append(Dropped(self._missing))
            self._missing = 0
        self._closing.set()
        self._writer.join(wait_seconds)
        self._writer = None

    def _pack_fresh(self) -> None:
        """One thread at a time; the list itself is only ever appended to, and cut at its beginning, in one step each."""
        with self._packing:
            batch = self._fresh[:SLICE]
            del self._fresh[: len(batch)]
            if batch:
                self._waiting += len(batch)
                self._packed.append((len(batch), self._pack(batch)))

    def _run(self) -> None:
        self._attempt([])  # with nothing in hand: what can be opened is opened, and complains, before it is needed
        while not self._closing.is_set():
            self._closing.wait(self._pause_seconds if self._drain() else self._retry_seconds)
        if not self._drain():
            self.dropped += len(self)

    def _drain(self) -> bool:
        """Write all that is queued now; False when a write failed (the next try begins with the same)."""
        while self._fresh:
            self._pack_fresh()
        while self._packed:
            batch = [self._packed[at] for at in range(min(len(self._packed), AT_ONCE))]
            if not self._attempt([packed for _, packed in batch]):
                return False
            for items, _ in batch:
                self._packed.popleft()
                with self._packing:
                    self._waiting -= items
        return True

    def _attempt(self, batch: Sequence[Packed]) -> bool:
        try:
            self._write(batch)
        except OSError as error:
            self.failures += 1
            self._complain(error)
            return False
        return True

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + self._complain_seconds
        log.warning("%s cannot be written: %s (%d dropped so far)", self._name, error.strerror or error, self.dropped)
