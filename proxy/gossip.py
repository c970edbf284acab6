"""What replicas tell each other, whoever carries it.

Two kinds of messages. *Lessons*: facts of finished requests, in small batches with growing numbers, so that a batch which
comes late, twice or out of order teaches nothing twice. *Load*: all of what a replica has in flight at this moment; only
the newest counts, and silence means that the replica is gone. What is heard is folded in by ``observe``, as any event.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from policies.events import Event, PeerLearnt, PeerLoad, PeerLost
from policies.peers import Heard

VERSION = 1
"""Messages of another version are passed over, so that replicas of two releases can share one Redis."""

BATCH = 32
"""Lessons in one message: folding one in costs tens of microseconds, and a message is folded in at once."""

WAITING = 20_000
"""Lessons kept while nobody carries them; the oldest leave first."""

REPLICAS = 1_000
"""Replicas, past ones included, of which it is remembered what was heard."""

LESSONS, LOAD, BYE = "lessons", "load", "bye"

Facts = tuple[str | int | float | bool | None, ...]


class Load(NamedTuple):
    """What this replica has on one backend. Meanings: ``policies.events.PeerLoad``."""

    backend: str
    in_flight: int
    waiting_prompt_tokens: float
    prefilled_tokens: float


class Message(msgspec.Struct, array_like=True):
    """One message; ``sequence`` numbers the first of its items, the others follow."""

    version: int
    kind: str
    replica: str
    sequence: int
    facts: list[Facts] = []
    load: list[Load] = []


class Gossip:
    """One replica's side of it. Does no I/O and never fails; ``hear`` takes any bytes."""

    def __init__(
        self,
        replica: str,
        observe: Callable[[Event], None],
        now: Callable[[], float],
        lessons: deque[Any],
        load: Callable[[], Iterable[Load]],
        heartbeat_seconds: float = 1.0,
        silence_seconds: float = 5.0,
    ) -> None:
        """``lessons`` holds tuples of plain values (``policies.lesson.Lesson``) and is drained from its left; ``load`` is asked several times a second."""
        self.replica = replica
        self.dropped = 0
        """Lessons that nobody will hear: too many waited for a carrier."""
        self.learnt = 0
        """Lessons of others that were folded in."""
        self.misunderstood = 0
        """Messages that made no sense."""
        self._observe = observe
        self._now = now
        self._lessons = lessons
        self._load = load
        self._heartbeat_seconds = heartbeat_seconds
        self._silence_seconds = silence_seconds
        self._waiting: deque[Facts] = deque()
        self._first_waiting = 0
        self._load_sequence = 0
        self._load_told: tuple[Load, ...] = ()
        self._load_told_at = float("-inf")
        self._heard: OrderedDict[str, Heard] = OrderedDict()
        self._heard_at: dict[str, float] = {}

    @property
    def peers(self) -> int:
        """Other replicas whose load is known now."""
        return len(self._heard_at)

    def next_lessons(self) -> bytes | None:
        """A batch that waits, None when there is none. It is offered again until ``told``."""
        self._collect()
        facts = [self._waiting[place] for place in range(min(BATCH, len(self._waiting)))]
        return self._pack(LESSONS, self._first_waiting, facts=facts) if facts else None

    def told(self, message: bytes) -> None:
        """A message of ``next_lessons`` was carried."""
        known = _DECODER.decode(message)
        for _ in range(min(len(self._waiting), known.sequence + len(known.facts) - self._first_waiting)):
            self._waiting.popleft()
            self._first_waiting += 1

    def _collect(self) -> None:
        while self._lessons:
            self._waiting.append(self._lessons.popleft())
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._first_waiting += 1
            self.dropped += 1

    def next_load(self) -> bytes | None:
        """All of the load, when it changed or others should hear that we live."""
        load = tuple(self._load())
        now = self._now()
        if load == self._load_told and now - self._load_told_at < self._heartbeat_seconds:
            return None
        self._load_told, self._load_told_at = load, now
        self._load_sequence += 1
        return self._pack(LOAD, self._load_sequence, load=list(load))

    def untold(self) -> None:
        """The last load was not carried: tell it again, changed or not."""
        self._load_told_at = float("-inf")

    def bye(self) -> bytes:
        """The last message of a replica that leaves."""
        return self._pack(BYE, self._load_sequence + 1)

    def _pack(self, kind: str, sequence: int, **body: list[Facts] | list[Load]) -> bytes:
        return _ENCODER.encode(Message(VERSION, kind, self.replica, sequence, **body))  # type: ignore[arg-type]  # by name

    def hear(self, data: bytes) -> int:
        """Fold a message in; the number of lessons that were news."""
        try:
            message = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.misunderstood += 1
            return 0
        if message.version != VERSION or message.replica == self.replica:
            return 0
        if message.kind == LESSONS:
            return self._hear_lessons(message)
        if message.kind == LOAD:
            self._hear_load(message)
        elif message.kind == BYE:
            self._lose(message.replica)
        return 0

    def _hear_lessons(self, message: Message) -> int:
        heard = self._heard.setdefault(message.replica, Heard())
        self._heard.move_to_end(message.replica)
        if len(self._heard) > REPLICAS:
            self._heard.popitem(last=False)
        news = 0
        for sequence, facts in enumerate(message.facts, message.sequence):
            if heard.is_news(sequence):
                news += 1
                self._observe(PeerLearnt(self._now(), message.replica, sequence, facts))
        self.learnt += news
        return news

    def _hear_load(self, message: Message) -> None:
        now = self._heard_at[message.replica] = self._now()
        for load in message.load:
            self._observe(PeerLoad(now, message.replica, message.sequence, *load))

    def check_silence(self) -> None:
        """Forget the load of replicas that have been silent for too long."""
        limit = self._now() - self._silence_seconds
        for replica in [replica for replica, at in self._heard_at.items() if at < limit]:
            self._lose(replica)

    def _lose(self, replica: str) -> None:
        if self._heard_at.pop(replica, None) is not None:
            self._observe(PeerLost(self._now(), replica))


def lessons_in(data: bytes) -> int:
    """How many lessons a message holds."""
    try:
        return len(_DECODER.decode(data).facts)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Message)
