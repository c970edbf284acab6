"""Gives a batch its time: one task makes steps, waits as long as each would take, and hands out what grew."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxy.simulated.batch import Batch, Counters, Job, Order
from proxy.simulated.character import Character


@dataclass(eq=False)
class Run:
    """The answers of one request, as they grow."""

    jobs: list[Job]
    started_at: float
    grown: "asyncio.Queue[tuple[int, tuple[str, ...], str | None]]" = field(default_factory=asyncio.Queue)
    first_at: float | None = None
    ended_at: float | None = None

    async def steps(self) -> AsyncIterator[tuple[int, tuple[str, ...], str | None]]:
        """(answer, its new tokens, finish reason or None) per step, until every answer ended."""
        left = len(self.jobs)
        while left:
            index, pieces, finish = await self.grown.get()
            left -= finish is not None
            yield index, pieces, finish

    @property
    def prompt_tokens(self) -> int:
        """Read for the request; answers to the same prompt share it."""
        return sum({job.order.prompt: job.order.prompt_tokens for job in self.jobs}.values())

    @property
    def cached_tokens(self) -> int:
        """Of the prompt tokens, those that were not read again."""
        return self.jobs[0].cached

    @property
    def completion_tokens(self) -> int:
        """Of all answers."""
        return sum(job.tokens for job in self.jobs)


class Clockwork:
    """A simulated engine at work. ``run`` must be running for anything to grow."""

    def __init__(self, character: Character) -> None:
        """An idle engine of that character."""
        self.character = character
        self.batch = Batch(character)
        self.stalled = False
        self._work = asyncio.Event()
        self._runs: dict[Job, tuple[Run, int]] = {}

    @contextmanager
    def begin(self, orders: Sequence[Order]) -> Iterator[Run]:
        """Start a request for one or more answers; leaving the block, finished or not, takes it out of the engine."""
        run = Run([self.batch.admit(order) for order in orders], asyncio.get_running_loop().time())
        self._runs |= {job: (run, index) for index, job in enumerate(run.jobs)}
        self._work.set()
        try:
            yield run
        finally:
            for job in run.jobs:
                self._runs.pop(job, None)
                self.batch.drop(job)

    def become(self, character: Character) -> None:
        """Change character while running; requests already admitted keep their acceptance."""
        self.character = self.batch.character = character
        self._work.set()

    def reset(self) -> None:
        """Counters start anew, as after a restart."""
        self.batch.counters = Counters(self.character.depth)

    def stall(self, stalled: bool) -> None:
        """Hang in mid-step, or go on."""
        self.stalled = stalled
        self._work.set()

    async def run(self) -> None:
        """Make steps for ever; ends by being cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if self.stalled or not (self.batch.running or self.batch.waiting):
                self._work.clear()
                await self._work.wait()
                due = loop.time()
                continue
            step = self.batch.step()
            due = max(due, loop.time() - 0.05) + step.seconds  # a late wake-up is made up for, a long sleep is not
            await asyncio.sleep(max(due - loop.time(), 0))
            for job, pieces in step.grown:
                self._hand_out(job, pieces, loop.time())

    def _hand_out(self, job: Job, pieces: tuple[str, ...], now: float) -> None:
        if job not in self._runs:
            return  # its client left while the step ran
        run, index = self._runs[job]
        run.first_at = run.first_at or now
        run.ended_at = now
        run.grown.put_nowait((index, pieces, job.finish))
