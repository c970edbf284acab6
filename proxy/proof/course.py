"""The run: who is asked what, when. Arms alternate so that drift of the machine hits both alike."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from proxy.engines.base import Scrape
from proxy.proof.arm import Client, Place, Sample
from proxy.proof.prompts import Prompt

CLOSING = -1
BOOKING_SECONDS = 0.3
"""How long an engine is given to book its last request's counters."""
FEWEST_BLOCKS = 10
"""Blocks a load is cut into at least, as far as its concurrency allows: a sign-flip test needs them."""


@dataclass(frozen=True)
class Load:
    """How hard the arms are pressed: ``concurrency`` requests at once, or ``rate`` Poisson arrivals per second."""

    concurrency: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise ValueError("a load is a concurrency or a rate")
        if not (self.concurrency or self.rate or 0) > 0:
            raise ValueError("concurrency and rate must be positive")

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.concurrency} at once" if self.rate is None else f"{self.rate:g}/s"

    def block_size(self, prompts: int) -> int:
        """Prompts sent to one arm before the other has its turn."""
        wanted = self.concurrency or max(1, round((self.rate or 0) * 10))
        return wanted if wanted == 1 else max(min(2 * wanted, prompts // FEWEST_BLOCKS), min(wanted, prompts), 1)


class Burst(NamedTuple):
    """One arm's turn: the prompts of one block."""

    arm: int
    load: Load
    block: int
    prompts: tuple[Prompt, ...]


class Turn(NamedTuple):
    """One burst: how long it took, and the engine's counters when it began.

    Engines book a request's drafts after its last byte, so a turn's own share is the difference to the
    counters at the *next* turn of the same arm. A turn of block ``CLOSING`` is only such a last look.
    """

    arm: str
    load: str
    block: int
    seconds: float
    before: Scrape | None
    kinds: frozenset[str]


@dataclass
class Course:
    """What was measured so far; readable at any time, also after an interruption."""

    planned: int = 0
    started: int = 0
    """Requests sent so far."""
    samples: list[Sample] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    interrupted: bool = False


def plan(prompts_by_load: Mapping[Load, Sequence[Prompt]], arms: int, first_block: int = 0) -> list[Burst]:
    """Bursts in order. Two arms go A B, B A, A B …; more arms rotate and reverse, so each place is shared fairly."""
    bursts: list[Burst] = []
    block = first_block
    for load, prompts in prompts_by_load.items():
        size = load.block_size(len(prompts))
        for start in range(0, len(prompts), size):
            chunk = tuple(prompts[start : start + size])
            bursts += [Burst(arm, load, block, chunk) for arm in arm_order(block, arms)]
            block += 1
    return bursts


def arm_order(block: int, arms: int) -> list[int]:
    """Rotation by pairs of blocks, the second of a pair reversed: ABBA for two arms."""
    shift = block // 2 % arms if arms > 2 else 0
    rotated = [(place + shift) % arms for place in range(arms)]
    return rotated[::-1] if block % 2 else rotated


Listener = Callable[[Sample], None]


async def run(
    course: Course, bursts: Sequence[Burst], clients: Sequence[Client], told: Listener, seed: int = 1
) -> None:
    """Work the bursts off, adding to ``course``. Cancelling it leaves everything measured so far there."""
    course.planned += sum(len(burst.prompts) for burst in bursts)
    try:
        for burst in bursts:
            await _burst(course, burst, clients[burst.arm], told, seed)
        await asyncio.sleep(BOOKING_SECONDS)
    except asyncio.CancelledError:
        course.interrupted = True
        raise
    finally:
        for client in clients:
            last = await client.scrape()
            course.turns.append(Turn(client.arm.name, "", CLOSING, 0.0, last, frozenset()))


async def _burst(course: Course, burst: Burst, client: Client, told: Listener, seed: int) -> None:
    before = await client.scrape()
    started = monotonic()

    async def one(prompt: Prompt) -> None:
        place = Place(burst.load.name, course.started, burst.block)
        course.started += 1
        sample = await client.ask(prompt, place)
        course.samples.append(sample)
        told(sample)

    await _press(burst, one, random.Random(seed + burst.block))
    kinds = frozenset(prompt.kind for prompt in burst.prompts)
    seconds = monotonic() - started
    course.turns.append(Turn(client.arm.name, burst.load.name, burst.block, seconds, before, kinds))


async def _press(burst: Burst, one: Callable[[Prompt], Awaitable[None]], rng: random.Random) -> None:
    """Both arms get the same arrival gaps, since the generator is seeded by the block."""
    waiting = iter(burst.prompts)

    async def worker() -> None:
        for prompt in waiting:
            await one(prompt)

    async with asyncio.TaskGroup() as group:
        if burst.load.rate is None:
            for _ in range(burst.load.concurrency or 1):
                group.create_task(worker())
            return
        async for prompt in _arrivals(burst.prompts, burst.load.rate, rng):
            group.create_task(_run(one, prompt))


async def _run(one: Callable[[Prompt], Awaitable[None]], prompt: Prompt) -> None:
    await one(prompt)


async def _arrivals(prompts: Sequence[Prompt], rate: float, rng: random.Random) -> AsyncIterator[Prompt]:
    for prompt in prompts:
        yield prompt
        await asyncio.sleep(rng.expovariate(rate))
