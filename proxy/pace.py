"""Long work in a thread, without keeping the interpreter lock from the event loop.

A thread that computes holds the lock until somebody asks, and then for up to 5 ms more (``sys.getswitchinterval``): five
times what a relayed chunk may wait. Sleeping gives the lock away at once.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

HOLD_SECONDS = 0.0003
PAUSE_SECONDS = 0.0003


def paced(items: Iterable[Item], hold_seconds: float = HOLD_SECONDS) -> Iterator[Item]:
    """The same items, with a short sleep whenever ``hold_seconds`` have passed. Not for the event loop's thread."""
    until = time.perf_counter() + hold_seconds
    for item in items:
        yield item
        if time.perf_counter() > until:
            time.sleep(PAUSE_SECONDS)
            until = time.perf_counter() + hold_seconds
