import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from proxy.simulated.character import Character
from proxy.simulated.running import simulated

Serve = Callable[[Character], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts simulated engines on a loop of their own, so that a command can run its own loop beside them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()

    def start(character: Character) -> str:
        return asyncio.run_coroutine_threadsafe(stack.enter_async_context(simulated(character)), loop).result(20)

    yield start
    asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
