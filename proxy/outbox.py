"""A bounded queue from the event loop to a thread that writes.

What leaves the gateway for a disk or a terminal must never hold up a request, and must never grow
without end when the other side is slow. So: append costs a deque append, the thread takes slices, and
what does not fit is dropped, counted, and marked at the very place where it is missing.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from proxy.pace import PAUSE_SECONDS

Item = TypeVar("Item")

log = logging.getLogger(__name__)

SLICE = 256
"""Items per write. Encoding holds the interpreter lock, so a slice has to stay below a millisecond."""


class Dropped(NamedTuple):
    """``missing`` items should have been here: the queue was full."""

    missing: int


class Outbox(Generic[Item]):
    """Appends from one thread, writes from another.

    ``write`` gets slices in order, the first one empty, and must take all or nothing: when it raises ``OSError`` the same
    slice is offered again after ``retry_seconds``, and meanwhile the queue fills and then drops.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[Item | Dropped]], None],
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
        self._write = write
        self._bound = bound
        self._pause_seconds = pause_seconds
        self._retry_seconds = retry_seconds
        self._complain_seconds = complain_seconds
        self._queue: deque[Item | Dropped] = deque()
        self._missing = 0
        self._held: list[Item | Dropped] = []
        self._quiet_until = 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._held) + len(self._queue)

    def append(self, item: Item) -> None:
        """Queue ``item``, or count it as dropped. Never waits, never fails; call it from one thread."""
        queue = self._queue
        if len(queue) >= self._bound:
            self.dropped += 1
            self._missing += 1
            return
        if self._missing:
            queue.append(Dropped(self._missing))
            self._missing = 0
        queue.append(item)

    def start(self) -> None:
        """Start the writing thread (after a fork, not before: threads do not survive one)."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def close(self, wait_seconds: float = 5.0) -> None:
        """Write what is queued and end the thread. What cannot be written within ``wait_seconds`` is lost."""
        if self._thread is None:
            return
        if self._missing:
            self._queue.append(Dropped(self._missing))
            self._missing = 0
        self._closing.set()
        self._thread.join(wait_seconds)
        self._thread = None

    def _run(self) -> None:
        self._attempt()  # with nothing in hand: what can be opened is opened, and complains, before it is needed
        while not self._closing.is_set():
            self._closing.wait(self._pause_seconds if self._drain() else self._retry_seconds)
        if not self._drain():
            self.dropped += sum(type(item) is not Dropped for item in (*self._held, *self._queue))

    def _drain(self) -> bool:
        """Write all that is queued now; False when a write failed (its slice is held for the next try)."""
        queue = self._queue
        while self._held or queue:
            if not self._held:
                self._held = [queue.popleft() for _ in range(min(len(queue), SLICE))]
            if not self._attempt():
                return False
            self._held = []
            time.sleep(PAUSE_SECONDS)
        return True

    def _attempt(self) -> bool:
        try:
            self._write(self._held)
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
