"""Time that passes only when a test says so, and waiting that asks no clock."""

import asyncio
from collections.abc import Callable


class Clock:
    """Seconds since the epoch; stands still by itself."""

    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.at += seconds


async def until(happened: Callable[[], object]) -> None:
    """Let the loop run until something is true. The suite's own timeout ends what never happens."""
    while not happened():  # noqa: ASYNC110 - what is waited for is a plain value, which sets no event
        await asyncio.sleep(0.001)
