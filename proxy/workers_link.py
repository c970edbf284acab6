"""A worker's end of the channel to its parent, and through it to the other workers."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import cast

from proxy.gossip import Gossip
from proxy.workers_channel import Ask, Give, Given, Gossiped, Message, Ready, Stop, Told, Unframer, framed

log = logging.getLogger(__name__)

TELL_SECONDS = 0.025
"""Between two looks at what there is to tell the others, as through Redis."""
SILENCE_CHECKS = 20
"""Once in so many looks it is checked who has become silent."""
UNSENT_BYTES = 1024 * 1024
"""When so much waits for the parent, nothing is added: lessons wait in ``Gossip``, where their number is bounded."""
PATIENCE_SECONDS = 5.0
"""For the parent, which has patience of its own with the other workers."""

Part = Callable[[], Awaitable[bytes]]


class Siblings(asyncio.Protocol):
    """``open`` inside the loop, ``close`` at the end. When the parent is gone, it is time to stop."""

    def __init__(self, worker: int, replica: str, channel: socket.socket) -> None:
        self.worker = worker
        """This worker's number, from 1."""
        self.replica = replica
        """Its name in gossip."""
        self.stopping = asyncio.Event()
        """The parent said so, or is gone."""
        self.at_once = asyncio.Event()
        """Without finishing what runs."""
        self._channel = channel
        self._transport: asyncio.Transport | None = None
        self._unframer = Unframer()
        self._parts: Mapping[str, Part] = {}
        self._gossip: Gossip | None = None
        self._heard: deque[bytes] = deque()
        self._hearing = asyncio.Event()
        self._asked: dict[int, asyncio.Future[list[bytes]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, parts: Mapping[str, Part], gossip: Gossip | None) -> None:
        """Answer the others with ``parts``, and learn with them through ``gossip`` unless something else carries it."""
        self._parts, self._gossip = parts, gossip
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._channel)
        if gossip is not None:
            self._run(self._tell(gossip))
            self._run(self._learn(gossip))

    def ready(self) -> None:
        """This worker serves."""
        self._send(Ready())

    async def gather(self, topic: str, own: bytes) -> list[bytes]:
        """What the other workers say to a topic. Raises TimeoutError or ConnectionError: a part is not the whole."""
        answer = asyncio.get_running_loop().create_future()
        number = max(self._asked, default=0) + 1
        self._asked[number] = answer
        try:
            self._send(Ask(number, topic, own))
            async with asyncio.timeout(PATIENCE_SECONDS):
                return cast(list[bytes], await answer)
        finally:
            del self._asked[number]

    async def close(self) -> None:
        """Tell what is left, and hang up; the parent tells the others that this worker is gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._transport is not None:
            if self._gossip is not None:
                self._tell_lessons(self._gossip)
            self._transport.close()

    # -- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._hear(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.stopping.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the parent process is gone"))

    # -- own
    def _send(self, message: Message) -> None:
        if self._transport is None:
            raise ConnectionResetError("the parent process is gone")
        self._transport.write(framed(message))

    def _hear(self, message: Message) -> None:
        if isinstance(message, Gossiped):
            self._heard.append(message.data)
            self._hearing.set()
        elif isinstance(message, Give):
            self._run(self._give(message))
        elif isinstance(message, Told):
            answer = self._asked.get(message.number)
            if answer is not None and not answer.done():
                answer.set_result(message.parts)
        elif isinstance(message, Stop):
            self.stopping.set()
            if message.at_once:
                self.at_once.set()

    async def _give(self, asked: Give) -> None:
        data = await self._parts[asked.topic]()
        with suppress(ConnectionError):
            self._send(Given(asked.number, data))

    async def _tell(self, gossip: Gossip) -> None:
        turn = 0
        while self._transport is not None:
            await asyncio.sleep(TELL_SECONDS)
            turn += 1
            if turn % SILENCE_CHECKS == 0:
                gossip.check_silence()
            load = gossip.next_load()
            if load is not None:
                self._tell_one(load)
            self._tell_lessons(gossip)

    def _tell_one(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(framed(Gossiped(data)))

    def _tell_lessons(self, gossip: Gossip) -> None:
        while self._has_room() and (lessons := gossip.next_lessons()) is not None:
            self._tell_one(lessons)
            gossip.told(lessons)

    def _has_room(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() < UNSENT_BYTES

    async def _learn(self, gossip: Gossip) -> None:
        while True:
            await self._hearing.wait()
            self._hearing.clear()
            while self._heard:
                gossip.hear(self._heard.popleft())
                await asyncio.sleep(0)  # one batch is some hundred microseconds; requests go between

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(cast("asyncio.Task[None]", task))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("talking to the other workers failed", exc_info=error)
