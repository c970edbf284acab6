"""Watches backends: are they alive, what do they say of themselves and of their load.

One task per backend. A round is a ``GET /health`` (never a generated text: a fixed probe prompt poisons n-gram
drafters) and, where there is one, a read of the metrics page. A backend that was away is asked anew what it is, because
it may come back as something else. What follows from all that is judged elsewhere; here it becomes events.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from policies.events import Event, Joined, Probed, Scraped
from proxy.discovery import BackendUnreachableError, discover, get, root
from proxy.engines import ENGINES
from proxy.engines.base import Discovered, Scrape

log = logging.getLogger("draftlane.scrape")

_LARGE_PAGE_CHARACTERS = 262_144
"""A vLLM page of 67 kB is read in 0.16 ms; from about here on it would be felt by the streams on the loop."""


class Watched(NamedTuple):
    """A backend to watch. Fields that are None are taken from what it says of itself."""

    name: str
    url: str
    lane: str
    """``speculative`` or ``plain``."""
    headers: Mapping[str, str] = {}
    models: tuple[str, ...] | None = None
    engine: str | None = None
    """A key of ``ENGINES``."""
    depth: int | None = None
    max_context_tokens: int | None = None
    max_requests: int | None = None
    refuses: tuple[str, ...] | None = None
    drafts_always: bool | None = None


@dataclass(frozen=True)
class Pace:
    """How often and how patiently to look."""

    every_seconds: float = 2.0
    """Between two rounds of a backend that is well."""
    patience_seconds: float = 5.0
    """For one answer; an engine deep in a long prefill answers late."""
    discovery_seconds: float = 10.0
    """For all questions of one discovery together."""
    away_seconds: float = 15.0
    """Longest pause between two looks at a backend that is away; pauses double up to it."""
    afresh_seconds: float = 300.0
    """After so long a backend is asked again what it is: adapters are loaded and unloaded while it runs."""

    def __post_init__(self) -> None:
        """Refuse a pace that would spin or never look."""
        if min(self.every_seconds, self.patience_seconds, self.discovery_seconds, self.away_seconds) <= 0:
            raise ValueError("all intervals must be positive")


@dataclass
class _Sight:
    """What is known of one backend from the rounds before."""

    found: Discovered | None = None
    asked_at: float = 0.0
    joined: Joined | None = None
    misses: int = 0
    generated: float = 0.0


def joined(watched: Watched, found: Discovered, at: float) -> Joined:
    """The event for a backend: what the operator configured, else what it says, else what its engine is known for."""
    speculates = watched.lane == "speculative"
    engine = ENGINES[watched.engine or found.engine]
    depth = watched.depth if watched.depth is not None else found.depth
    refuses = watched.refuses if watched.refuses is not None else engine.refuses if speculates else ()
    always = watched.drafts_always if watched.drafts_always is not None else found.drafts_always
    return Joined(
        at=at,
        backend=watched.name,
        lane=watched.lane,
        models=watched.models if watched.models is not None else found.models,
        engine=engine.name,
        depth=depth if speculates else 0,
        max_context_tokens=watched.max_context_tokens or found.max_context_tokens,
        max_requests=watched.max_requests or found.max_requests,
        refuses=refuses,
        drafts_always=always is not False,
        one_event_per_step=engine.one_event_per_step,
    )


def scraped(backend: str, scrape: Scrape, at: float) -> Scraped:
    """The event for a page that was read."""
    return Scraped(at, backend, *scrape)


@dataclass
class Watch:
    """Looks at backends over ``client`` and tells ``observe``. ``clock`` gives the events' time in seconds."""

    client: httpx.AsyncClient
    backends: Sequence[Watched]
    observe: Callable[[Event], None]
    clock: Callable[[], float]
    pace: Pace = Pace()
    _sights: dict[str, _Sight] = field(default_factory=dict, init=False)

    @property
    def discovered(self) -> dict[str, Discovered]:
        """By backend, what it last said of itself; backends never reached are missing."""
        return {name: sight.found for name, sight in self._sights.items() if sight.found is not None}

    async def run(self) -> None:
        """Look at every backend for ever; ends by being cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watched in self.backends:
                tasks.create_task(self._follow(watched), name=f"watch {watched.name}")

    async def look(self) -> None:
        """One round over all backends at once, for a start that knows its fleet."""
        await asyncio.gather(*(self.round(watched) for watched in self.backends))

    async def _follow(self, watched: Watched) -> None:
        while True:
            await asyncio.sleep(self.pause_seconds(watched) if watched.name in self._sights else 0)
            await self.round(watched)

    def pause_seconds(self, watched: Watched) -> float:
        """Until the next round: doubled with every miss in a row."""
        misses = self._sights[watched.name].misses if watched.name in self._sights else 0
        return min(
            self.pace.every_seconds * 2.0 ** min(misses, 16), max(self.pace.away_seconds, self.pace.every_seconds)
        )

    async def round(self, watched: Watched) -> None:
        """Look at one backend once. Reports what happened as events; never raises."""
        sight = self._sights.setdefault(watched.name, _Sight())
        if not await self._alive(watched):
            self._missed(watched, sight)
            return
        was_away, sight.misses = sight.misses > 0, 0
        outdated = self.clock() - sight.asked_at >= self.pace.afresh_seconds
        if (sight.found is None or was_away or outdated) and not await self._ask(watched, sight, again=was_away):
            self._missed(watched, sight)
            return
        self.observe(Probed(self.clock(), watched.name, ok=True))
        await self._read(watched, sight)

    def _missed(self, watched: Watched, sight: _Sight) -> None:
        sight.misses += 1
        self.observe(Probed(self.clock(), watched.name, ok=False))

    async def _alive(self, watched: Watched) -> bool:
        answer = await get(self.client, root(watched.url) + "/health", watched.headers, self.pace.patience_seconds)
        # Servers without a /health say 404, those that want a key for it 401: both are alive. 503 means loading.
        return answer.status is not None and answer.status < 500

    async def _ask(self, watched: Watched, sight: _Sight, again: bool) -> bool:
        try:
            found = await discover(self.client, watched.url, watched.headers, self.pace.discovery_seconds)
        except BackendUnreachableError as error:
            log.warning("backend %s answers /health but not what it is: %s", watched.name, error)
            return False
        now = self.clock()
        event = joined(watched, found, now)
        told, sight.found, sight.asked_at = sight.joined, found, now
        if again or told is None or told._replace(at=now) != event:
            sight.joined, sight.generated = event, 0.0
            self.observe(event)
        return True

    async def _read(self, watched: Watched, sight: _Sight) -> None:
        if sight.found is None or not sight.found.metrics:
            return
        engine = ENGINES[sight.found.engine]
        url = root(watched.url) + engine.metrics_path
        answer = await get(self.client, url, watched.headers, self.pace.patience_seconds)
        if answer.status != 200:
            return  # Without an event the last reading grows old by itself, which is what it is.
        at = self.clock()
        large = len(answer.body) > _LARGE_PAGE_CHARACTERS
        scrape = (
            await asyncio.to_thread(engine.read_metrics, answer.body) if large else engine.read_metrics(answer.body)
        )
        generated = scrape.generated_tokens or 0.0
        if generated < sight.generated:
            # It restarted between two rounds: ask it what it is now, before its counters are believed.
            await self._ask(watched, sight, again=True)
        sight.generated = generated
        self.observe(scraped(watched.name, scrape, at))
