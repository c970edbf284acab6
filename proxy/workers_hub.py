"""What the parent does for its workers: passes on what they tell each other, and collects what all of them know.

No I/O here: messages in, messages out. Two things outlive a worker. Its counters, since a counter that falls is read
as a restart of everything; and the lessons it told, since the worker that takes its place should know what was learnt.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from proxy.gossip import BYE, VERSION, lessons_in
from proxy.gossip import Message as GossipMessage
from proxy.metric_table import COUNTER, HISTOGRAM, METRICS
from proxy.metrics import Figures, merge
from proxy.workers_channel import FIGURES, FIGURES_DECODER, Ask, Give, Given, Gossiped, Message, Ready, Told

PATIENCE_SECONDS = 2.0
"""For a worker's part; then what it said last time is taken."""
LESSONS_KEPT = 5_000
"""For a worker that starts; older ones would be forgotten by decay anyway."""
_LASTING = frozenset(row.name for row in METRICS if row.kind in (COUNTER, HISTOGRAM))
_ENCODER = msgspec.msgpack.Encoder()


class Question:
    """Something that one worker asked of all others."""

    __slots__ = ("asker", "awaited", "parts", "said", "until")

    def __init__(self, asker: int, said: Ask, until: float, awaited: set[int]) -> None:
        self.asker = asker
        self.said = said
        self.until = until
        self.awaited = awaited
        self.parts: dict[int, bytes] = {}


class Hub:
    """Between the workers. ``send(worker, message)`` must not fail; ``tick`` is to be called several times a second."""

    def __init__(self, send: Callable[[int, Message], None], now: Callable[[], float]) -> None:
        self._send = send
        self._now = now
        self._replicas: dict[int, str] = {}
        self._serving: set[int] = set()
        """Workers that answer questions; one that is starting would keep the asker waiting."""
        self._questions: dict[int, Question] = {}
        self._numbers = 0
        self._last: dict[tuple[int, str], bytes] = {}
        """What each worker said last, by topic."""
        self._retired: Figures = {}
        self._lessons: deque[tuple[int, bytes]] = deque()
        self._lessons_kept = 0

    def joined(self, worker: int, replica: str) -> None:
        """A worker begins; ``replica`` is its name in gossip, a new one for each life. It hears what was learnt before."""
        self._replicas[worker] = replica
        for _, data in self._lessons:
            self._send(worker, Gossiped(data))

    def left(self, worker: int) -> None:
        """A worker is gone: nothing is in flight on it any more, but what it counted happened."""
        self._serving.discard(worker)
        replica = self._replicas.pop(worker, None)
        if replica is not None:
            self._pass_on(worker, _ENCODER.encode(GossipMessage(VERSION, BYE, replica, 0)))
        self._retire(worker)
        for number, question in list(self._questions.items()):
            if question.asker == worker:
                del self._questions[number]
            else:
                self._settle(number, worker, None)

    def _retire(self, worker: int) -> None:
        said = {topic: data for (of, topic), data in self._last.items() if of == worker}
        for topic in said:
            del self._last[worker, topic]
        if FIGURES in said:
            figures = FIGURES_DECODER.decode(said[FIGURES])
            lasting = {name: samples for name, samples in figures.items() if name in _LASTING}
            self._retired = merge([self._retired, lasting])

    def hear(self, worker: int, message: Message) -> None:
        """A worker said something."""
        if isinstance(message, Ready):
            self._serving.add(worker)
        elif isinstance(message, Gossiped):
            self._keep(message.data)
            self._pass_on(worker, message.data)
        elif isinstance(message, Ask):
            self._ask(worker, message)
        elif isinstance(message, Given):
            self._settle(message.number, worker, message.data)

    def _pass_on(self, teller: int, data: bytes) -> None:
        for worker in self._replicas:
            if worker != teller:
                self._send(worker, Gossiped(data))

    def _keep(self, data: bytes) -> None:
        lessons = lessons_in(data)
        if lessons:
            self._lessons.append((lessons, data))
            self._lessons_kept += lessons
        while self._lessons_kept > LESSONS_KEPT:
            self._lessons_kept -= self._lessons.popleft()[0]

    def _ask(self, asker: int, ask: Ask) -> None:
        self._last[asker, ask.topic] = ask.data
        self._numbers += 1
        number, others = self._numbers, self._serving - {asker}
        self._questions[number] = Question(asker, ask, self._now() + PATIENCE_SECONDS, set(others))
        for worker in others:
            self._send(worker, Give(number, ask.topic))
        self._answer_if_complete(number)

    def _settle(self, number: int, worker: int, data: bytes | None) -> None:
        question = self._questions.get(number)
        if question is None or worker not in question.awaited:
            return
        question.awaited.discard(worker)
        if data is not None:
            question.parts[worker] = self._last[worker, question.said.topic] = data
        self._answer_if_complete(number)

    def _answer_if_complete(self, number: int) -> None:
        question = self._questions[number]
        if question.awaited:
            return
        del self._questions[number]
        parts = [part for _, part in sorted(question.parts.items())]
        if question.said.topic == FIGURES and self._retired:
            parts.append(_ENCODER.encode(self._retired))
        self._send(question.asker, Told(question.said.number, parts))

    def tick(self) -> None:
        """Answer for workers that do not."""
        now = self._now()
        for number, question in list(self._questions.items()):
            if question.until <= now:
                for worker in list(question.awaited):
                    self._settle(number, worker, self._last.get((worker, question.said.topic)))
