"""The composition root: everything that runs beside the requests is made, started and stopped here."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from policies.events import Event, Joined, Scraped
from proxy import backends as backends_module
from proxy.alarming import Alarming
from proxy.config import Config
from proxy.config_sections import Backend as BackendSettings
from proxy.engines.base import SILENT
from proxy.gateway import Gateway, tell_all
from proxy.gossip import Gossip, Load
from proxy.journal import Journal, worker_path
from proxy.keys import Keys
from proxy.log import Log
from proxy.metrics import Metrics
from proxy.outcome import Outcome
from proxy.probe import probe_silent
from proxy.replaying import settings_text
from proxy.scrape import Pace, Watch, Watched, joined
from proxy.showing import Showing
from proxy.version import VERSION
from proxy.visits import visits
from proxy.workers_link import Siblings
from proxy.workers_showing import ShowingTogether

if TYPE_CHECKING:
    from proxy.shared import Shared

log = logging.getLogger("draftlane")
TICK_SECONDS = 0.25
LOOK_SECONDS = 5.0
"""Between two looks for alarms and silent backends."""
CATCH_UP_SECONDS = 2.0
"""Longest wait for what the other replicas learnt; a slow Redis must not keep a replica from serving."""
FIRST_LOOK_SECONDS = 3.0
"""Longest wait for the backends before the port opens; who answers later joins later."""


class Application:
    """One gateway process: the gateway, and what watches, records and shows it."""

    def __init__(self, config: Config, siblings: Siblings | None = None) -> None:
        """``siblings`` when this is one of several workers."""
        self.config = config
        self.siblings = siblings
        backends = backends_module.build(config)
        self.gateway = Gateway(config, backends, Keys(config.keys.sha256, config.keys.file))
        self.metrics = Metrics(VERSION, config.policy.name)
        self.journal = _journal(config, siblings)
        self.log = Log(sys.stderr, config.log.format, config.log.decisions)
        self.farewells: list[Callable[[Sequence[Outcome]], None]] = [self.metrics.ended]
        """Who hears how a request ended."""
        self._client, urls = visits(config.backends, config.watch.patience_seconds)
        watched = [_watched(one, urls[one.name]) for one in config.backends]
        self.watch = Watch(self._client, watched, self.observe, self.gateway.now, _pace(config))
        self.shared = _shared(config, self.gateway)
        self.gossip = self.shared.gossip if self.shared is not None else _gossip(self.gateway, siblings)
        self.showing = self._showing()
        self._connect()

    def _showing(self) -> Showing:
        if self.siblings is None:
            return Showing(self.gateway, self.metrics, _admin_key(self.config))
        return ShowingTogether(self.gateway, self.metrics, _admin_key(self.config), self.siblings)

    def _connect(self) -> None:
        gateway = self.gateway
        gateway.began = self.metrics.started
        gateway.ended = self._ended
        self.farewells += (self.showing.ended, self.log.ended)
        if self.journal is not None:
            gateway.listeners.append(self.journal.extend)
        gateway.listeners.append(self.metrics.heard)
        self._count_losses()

    def _count_losses(self) -> None:
        watch, log, journal, shared, gossip = self.metrics.watch, self.log, self.journal, self.shared, self.gossip
        watch("draftlane_dropped_total", lambda: log.dropped, "log")
        if journal is not None:
            watch("draftlane_dropped_total", lambda: journal.dropped, "journal")
            watch("draftlane_write_failures_total", lambda: journal.failures, "journal")
        if shared is not None:
            watch("draftlane_redis_up", lambda: float(shared.up))
        if gossip is not None:
            watch("draftlane_dropped_total", lambda: gossip.dropped, "lessons")
            watch("draftlane_peers", lambda: gossip.peers)
            watch("draftlane_peer_lessons_total", lambda: gossip.learnt)

    # -- listeners
    def observe(self, event: Event) -> None:
        """What the watch saw."""
        if isinstance(event, Joined):
            found = self.watch.discovered.get(event.backend)
            if found is not None:
                self.gateway.backends[event.backend].learn(found)
            self.gateway.introduce(event)
            return
        if isinstance(event, Scraped):
            self.showing.scraped(event)
        self.gateway.observe(event)

    def _ended(self, outcomes: Sequence[Outcome]) -> None:
        tell_all(self.farewells, outcomes)

    # -- running
    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything beside the requests, for as long as the block lasts."""
        self.log.install(self.config.log.level)
        self.log.start()
        if self.journal is not None:
            self.journal.start()
        self._introduce_configured()
        if self.siblings is not None:
            await self.siblings.open(self.showing.parts(), None if self.shared is not None else self.gossip)
        await self._first_look()
        if self.shared is not None:
            self.shared.start()
            await self.shared.caught_up(CATCH_UP_SECONDS)
        tasks = [
            asyncio.create_task(self._ticks()),
            asyncio.create_task(self.watch.run()),
            asyncio.create_task(self._reload_keys()),
            asyncio.create_task(self._look_around()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.gateway.close()
            await self._client.aclose()
            if self.shared is not None:
                await self.shared.close()
            if self.siblings is not None:
                await self.siblings.close()
            if self.journal is not None:
                await asyncio.to_thread(self.journal.close)
            await asyncio.to_thread(self.log.close)

    def _introduce_configured(self) -> None:
        """Every backend is a candidate from the first moment, with what the configuration knows."""
        for watched in self.watch.backends:
            self.gateway.introduce(joined(watched, SILENT, self.gateway.now()))

    async def _first_look(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self.watch.look()

    async def _ticks(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            turn += 1
            try:
                self.gateway.tick()
                if turn % 4 == 0:
                    self.gateway.sweep()
            except Exception:  # the heartbeat must not stop for a fault of ours
                log.exception("tick failed")

    async def _look_around(self) -> None:
        alarming = Alarming()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            alarming.look(self.gateway.fleet, self.gateway.now())
            if self.config.watch.probe_silent:
                probe_silent(self.gateway)

    async def _reload_keys(self) -> None:
        while True:
            await asyncio.sleep(self.config.keys.reload_seconds)
            await asyncio.to_thread(self.gateway.keys.reload)


def _admin_key(config: Config) -> bytes | None:
    server = config.server
    if server.admin_key_sha256 is not None:
        return bytes.fromhex(server.admin_key_sha256)
    if server.admin_key_file is not None:
        return sha256(server.admin_key_file.read_bytes().strip()).digest()
    return None


def _journal(config: Config, siblings: Siblings | None) -> Journal | None:
    path = config.journal.path
    if path is None:
        return None
    where = path if siblings is None else worker_path(path, siblings.worker)
    limits = config.journal
    return Journal(where, limits.max_bytes, limits.keep_files, version=VERSION, settings=settings_text(config.policy))


def _shared(config: Config, gateway: Gateway) -> "Shared | None":
    if config.redis_url is None:
        return None
    from proxy.shared import Shared  # noqa: PLC0415  # 4 MB with its client, of no use to a gateway without Redis

    return Shared(config.redis_url, gateway.observe, gateway.now, gateway.fleet.outbox, lambda: loads(gateway))


def _gossip(gateway: Gateway, siblings: Siblings | None) -> Gossip | None:
    """Without Redis, what the workers of one parent learn together."""
    if siblings is None:
        return None
    return Gossip(siblings.replica, gateway.observe, gateway.now, gateway.fleet.outbox, lambda: loads(gateway))


def loads(gateway: Gateway) -> list[Load]:
    """What this process has in flight, for the other replicas."""
    return [
        Load(backend.name, backend.own_in_flight, backend.own_waiting_tokens, backend.own_prefilled)
        for backend in gateway.fleet.backends.values()
    ]


def _watched(one: BackendSettings, url: str) -> Watched:
    return Watched(
        one.name,
        url,
        one.lane,
        one.request_headers(),
        one.models or None,
        one.engine,
        one.depth,
        one.max_context_tokens,
        one.max_requests,
        one.refuses,
        one.drafts_always,
    )


def _pace(config: Config) -> Pace:
    watch = config.watch
    return Pace(
        watch.every_seconds,
        watch.patience_seconds,
        watch.discovery_seconds,
        watch.away_seconds,
        watch.afresh_seconds,
    )
