"""Replicas learn together through Redis.

Two capped streams: one of lessons, long enough that a replica which starts can read what was learnt before it, its own
earlier life included; one of loads, of which only the newest matter. Nothing here is ever awaited on a request's way:
what there is to tell is collected several times a second, and when Redis is slow or gone it waits in a bounded queue.
``docs/replicas.md`` tells the operator's side.
"""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from policies.events import Event
from proxy.gossip import Gossip, Load, lessons_in

log = logging.getLogger(__name__)

TELL_SECONDS = 0.025
"""Between two looks at what there is to tell: a decision made on counts older than this costs latency."""
SILENCE_CHECK_SECONDS = 0.5
BLOCK_SECONDS = 2.0
ANSWER_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 5.0
BATCHES_AT_ONCE = 16
LESSON_BATCHES_KEPT = 2_000
LOADS_KEPT = 200
REPLAYED = 5_000
"""Lessons that a starting replica reads, newest ones; older ones would be forgotten by decay anyway."""
PAGE = 100
START = "0-0"
"""Before the first entry of any stream."""
KEPT_SECONDS = 7 * 24 * 3600
"""A fleet that has been gone for this long starts from nothing."""
COMPLAIN_SECONDS = 60.0

_FAILURES = (RedisError, OSError, TimeoutError)


class Entry(NamedTuple):
    """One entry of a stream."""

    place: str
    message: bytes


class Shared:
    """``start`` inside the loop, ``close`` at the end; everything else happens in the background."""

    def __init__(
        self,
        url: str,
        observe: Callable[[Event], None],
        now: Callable[[], float],
        lessons: deque[Any],
        load: Callable[[], Iterable[Load]],
        fleet: str = "default",
        replica: str | None = None,
    ) -> None:
        """``fleet`` keeps apart fleets that share one Redis. The other arguments are those of ``proxy.gossip.Gossip``."""
        self.gossip = Gossip(replica or _own_name(), observe, now, lessons, load)
        self.up = False
        """Redis answered the last time it was asked."""
        # The braces put both keys on one node of a Redis cluster.
        self._lessons_key = f"{{draftlane:{fleet}}}:lessons"
        self._load_key = f"{{draftlane:{fleet}}}:load"
        self._teller = _connect(url, ANSWER_SECONDS)
        self._listener = _connect(url, BLOCK_SECONDS + ANSWER_SECONDS)
        self._last = {self._lessons_key: START, self._load_key: START}
        """How far each stream was read."""
        self._caught_up = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._complained_at = float("-inf")

    def start(self) -> None:
        """Begin to tell and to listen. Returns at once, whether or not Redis is there."""
        for work in (self._tell(), self._listen(), self._watch()):
            task = asyncio.create_task(work)
            task.add_done_callback(_complain_of_the_unexpected)
            self._tasks.append(task)

    async def caught_up(self, wait_seconds: float) -> bool:
        """Wait until the lessons of the past were read, or not longer than this. For the start, not for requests."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._caught_up.wait(), wait_seconds)
        return self._caught_up.is_set()

    async def close(self) -> None:
        """Tell what is left, say good-bye, and let go of Redis."""
        pending = set(self._tasks)
        while (
            pending
        ):  # more than once: before Python 3.12 ``wait_for``, which redis-py uses, may swallow a cancellation
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=0.1)
        if self.up:
            with suppress(*_FAILURES):
                await self._send(farewell=True)
        for client in (self._teller, self._listener):
            with suppress(*_FAILURES):
                await client.aclose()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SILENCE_CHECK_SECONDS)
            self.gossip.check_silence()

    async def _tell(self) -> None:
        backoff = TELL_SECONDS
        while True:
            await asyncio.sleep(backoff)
            try:
                await self._send()
                backoff = TELL_SECONDS
            except _FAILURES as error:
                self.gossip.untold()
                self._went_down(error)
                backoff = min(LONGEST_BACKOFF_SECONDS, backoff * 2)

    async def _send(self, farewell: bool = False) -> None:
        """The load at once, the lessons behind it; a good-bye comes last, or its hearers would hear no more."""
        load = None if farewell else self.gossip.next_load()
        sent = 0
        while (message := self.gossip.next_lessons()) is not None or load is not None:
            await self._put(load, message)
            load = None
            if message is not None:
                self.gossip.told(message)
            sent += 1
            if sent >= BATCHES_AT_ONCE:
                break
        if farewell:
            await self._put(self.gossip.bye(), None)

    async def _put(self, load: bytes | None, lessons: bytes | None) -> None:
        pipeline = self._teller.pipeline(transaction=False)
        for key, message, kept in (
            (self._load_key, load, LOADS_KEPT),
            (self._lessons_key, lessons, LESSON_BATCHES_KEPT),
        ):
            if message is not None:
                pipeline.xadd(key, {"m": message}, maxlen=kept)
                pipeline.expire(key, KEPT_SECONDS)
        await pipeline.execute()
        self._came_up()

    async def _listen(self) -> None:
        backoff = TELL_SECONDS
        while True:
            try:
                await self._find_place()
                backoff = TELL_SECONDS
                while True:
                    await self._read()
            except _FAILURES as error:
                self._went_down(error)
            await asyncio.sleep(backoff)
            backoff = min(LONGEST_BACKOFF_SECONDS, backoff * 2)

    async def _find_place(self) -> None:
        """Where to read on: after the past at the start; from the beginning when Redis lost its memory meanwhile."""
        if not self._caught_up.is_set():
            await self._replay()
            self._caught_up.set()
            return
        for key, last in self._last.items():
            newest = await self._newest(key, 1)
            if newest and _number(newest[0].place) < _number(last):
                self._last[key] = START

    async def _replay(self) -> None:
        """Read the newest lessons of the past, in the order in which they happened. Loads of the past are past."""
        for key in self._last:
            newest = await self._newest(key, 1)
            self._last[key] = newest[0].place if newest else START
        pages, end, found = list[list[Entry]](), self._last[self._lessons_key], 0
        while found < REPLAYED and (entries := await self._newest(self._lessons_key, PAGE, end)):
            pages.append(entries)
            found += sum(lessons_in(entry.message) for entry in entries)
            end = f"({entries[-1].place}"
        for page in reversed(pages):
            await self._fold_in(reversed(page))

    async def _newest(self, key: str, count: int, end: str = "+") -> list[Entry]:
        return _entries(await self._listener.xrevrange(key, max=end, count=count))

    async def _read(self) -> None:
        places: dict[Any, Any] = {**self._last}
        answer: Any = await self._listener.xread(places, count=PAGE, block=int(BLOCK_SECONDS * 1000))
        self._came_up()
        for key, found in answer:
            entries = _entries(found)
            self._last[key.decode()] = entries[-1].place
            await self._fold_in(entries)

    async def _fold_in(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.gossip.hear(entry.message)
            await asyncio.sleep(0)  # one batch is some hundred microseconds; requests go between

    def _came_up(self) -> None:
        if not self.up:
            self.up = True
            log.info("redis answers: replicas share load and learning (this one is %s)", self.gossip.replica)

    def _went_down(self, error: Exception) -> None:
        self.up = False
        if time.monotonic() - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = time.monotonic()
            log.warning("redis does not answer, going on with what is known here: %s", error)


def _connect(url: str, patience_seconds: float) -> "Redis":
    """One attempt per command: who waits for what is decided here, not by the client library."""
    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=patience_seconds,
        socket_connect_timeout=ANSWER_SECONDS,
        client_name="draftlane",
        protocol=2,  # decides the shape of what xread returns
    )


def _own_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _entries(found: Any) -> list[Entry]:
    return [Entry(place.decode(), fields.get(b"m", b"")) for place, fields in found]


def _number(place: str) -> tuple[int, int]:
    milliseconds, _, number = place.partition("-")
    return int(milliseconds), int(number)


def _complain_of_the_unexpected(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("sharing with other replicas ended", exc_info=error)
