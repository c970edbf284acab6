"""The composition root: everything that runs beside the requests is made, started and stopped here."""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from hashlib import sha256

import httpx
import msgspec
from fastapi import Request

from policies.decide import decide
from policies.decision import Decision, Verdict
from policies.events import Event, Failed, Joined
from policies.explain import explain
from policies.snapshot import snapshot
from proxy import backends as backends_module
from proxy.config import Config
from proxy.config_sections import Backend as BackendSettings
from proxy.control import Snapshot
from proxy.errors import BadRequest
from proxy.gateway import Gateway
from proxy.journal import Journal, worker_path
from proxy.keys import Keys
from proxy.log import Log
from proxy.metrics import Metrics
from proxy.outcome import Outcome
from proxy.scrape import Pace, Watch, Watched
from proxy.version import VERSION
from proxy.wire.inbound import Passport

log = logging.getLogger("draftlane")
TICK_SECONDS = 0.25
FIRST_LOOK_SECONDS = 3.0
"""Longest wait for the backends before the port opens; who answers later joins later."""
RECENT = 50
"""Decisions shown on the dashboard."""


class Application:
    """One gateway process: the gateway, and what watches, records and shows it."""

    def __init__(self, config: Config, worker: int | None = None) -> None:
        self.config = config
        backends = backends_module.build(config)
        self.gateway = Gateway(config, backends, Keys(config.keys.sha256, config.keys.file))
        self.metrics = Metrics(VERSION, config.policy.name)
        self.recent: deque[Decision] = deque(maxlen=RECENT)
        self.draining = False
        self.admin_key_hash = _admin_key(config)
        self.journal = _journal(config, worker)
        self.log = Log(sys.stderr, config.log.format, config.log.decisions)
        self.farewells: list[Callable[[Outcome], None]] = [self.metrics.ended, self.log.ended]
        """Who hears how a request ended."""
        self._client = _watching_client(config)
        self.watch = Watch(
            self._client, [_watched(one) for one in config.backends], self.observe, self.gateway.now, _pace(config)
        )
        self._connect()

    def _connect(self) -> None:
        gateway = self.gateway
        gateway.began = self.metrics.started
        gateway.ended = self._ended
        gateway.tell = self._decided
        gateway.listeners.append(self._count_fault)
        if self.journal is not None:
            gateway.listeners.append(self.journal.append)

    # -- listeners
    def observe(self, event: Event) -> None:
        """What the watch saw."""
        if isinstance(event, Joined):
            found = self.watch.discovered.get(event.backend)
            if found is not None:
                self.gateway.backends[event.backend].learn(found)
            self.gateway.introduce(event)
        else:
            self.gateway.observe(event)

    def _decided(self, verdict: Verdict) -> None:
        if isinstance(verdict, Decision):
            self.recent.append(verdict)

    def _count_fault(self, event: Event) -> None:
        if type(event) is Failed:
            self.metrics.failed(event.backend, event.fault)

    def _ended(self, outcome: Outcome) -> None:
        for listener in self.farewells:
            listener(outcome)

    # -- running
    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything beside the requests, for as long as the block lasts."""
        self.log.install(self.config.log.level)
        self.log.start()
        if self.journal is not None:
            self.journal.start()
        self._introduce_configured()
        await self._first_look()
        tasks = [
            asyncio.create_task(self._ticks()),
            asyncio.create_task(self._rounds()),
            asyncio.create_task(self._reload_keys()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.gateway.close()
            await self._client.aclose()
            if self.journal is not None:
                await asyncio.to_thread(self.journal.close)
            await asyncio.to_thread(self.log.close)

    def _introduce_configured(self) -> None:
        """Every backend is a candidate from the first moment, with what the configuration knows."""
        for one in self.config.backends:
            self.gateway.introduce(
                Joined(
                    self.gateway.now(),
                    one.name,
                    one.lane,
                    one.models,
                    one.engine or "unknown",
                    one.depth,
                    one.max_context_tokens,
                    one.max_requests,
                    one.refuses or (),
                )
            )

    async def _first_look(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self.watch.look()

    async def _rounds(self) -> None:
        await self.watch.run()

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

    async def _reload_keys(self) -> None:
        while True:
            await asyncio.sleep(self.config.keys.reload_seconds)
            await asyncio.to_thread(self.gateway.keys.reload)

    # -- what the control plane shows
    def ready(self) -> tuple[bool, str]:
        """Whether requests can be served now, and why not."""
        if self.draining:
            return False, "shutting down"
        well = [name for name, backend in self.gateway.fleet.backends.items() if backend.breaker.admits()]
        return (True, f"{len(well)} of {len(self.gateway.backends)} backends") if well else (False, "no backend is up")

    def snapshot(self) -> Snapshot:
        """Everything that is known, as plain data."""
        state: Snapshot = snapshot(self.gateway.fleet, self.gateway.now())
        state["recent"] = [decision._asdict() for decision in reversed(self.recent)]
        state["live"] = len(self.gateway.live)
        state["version"] = VERSION
        return state

    def page(self, accept: str) -> tuple[bytes, str]:
        """The metrics page."""
        page = self.metrics.render(self.snapshot(), accept)
        return page.body, page.content_type

    def models(self) -> list[dict[str, object]]:
        """Entries of ``/v1/models``."""
        return self.gateway.models.cards()

    def may_enter(self, request: Request) -> bool:
        """The client's key is right."""
        keys = self.gateway.keys
        if keys.open:
            return True
        headers = request.headers
        given = [headers.get(name) for name in ("authorization", "x-api-key")]
        return keys.name_of(*(None if value is None else value.encode() for value in given)) is not None

    def allows(self, origin: str) -> bool:
        """See ``Answers``."""
        return self.gateway.clerk.allows(origin.encode())

    def is_surface(self, path: str) -> bool:
        """See ``Answers``."""
        return self.gateway.routes.is_surface(path)

    def judge(self, surface_path: str, body: bytes) -> Snapshot:
        """See ``Answers``. The request is neither sent nor remembered."""
        gateway = self.gateway
        surface = gateway.surface_at(b"POST", surface_path.encode())
        if surface is None:
            raise BadRequest(f"{surface_path} is not a surface", param="path")
        arrived = gateway.as_arrived(
            surface, surface.read(body, "application/json"), Passport("unsent", "unnamed"), "unsent"
        )
        verdict = decide(gateway.fleet, arrived)
        return {
            "verdict": type(verdict).__name__,
            **verdict._asdict(),
            "explanation": explain(verdict, gateway.fleet),
        }


def _admin_key(config: Config) -> bytes | None:
    server = config.server
    if server.admin_key_sha256 is not None:
        return bytes.fromhex(server.admin_key_sha256)
    if server.admin_key_file is not None:
        return sha256(server.admin_key_file.read_bytes().strip()).digest()
    return None


def _journal(config: Config, worker: int | None) -> Journal | None:
    path = config.journal.path
    if path is None:
        return None
    where = path if worker is None else worker_path(path, worker)
    settings = sha256(msgspec.json.encode(config.policy, order="deterministic")).hexdigest()[:16]
    return Journal(where, config.journal.max_bytes, config.journal.keep_files, version=VERSION, settings=settings)


def _watching_client(config: Config) -> httpx.AsyncClient:
    """One client for all backends; Unix sockets and private authorities get transports of their own."""
    mounts: dict[str, httpx.AsyncBaseTransport | None] = {}
    for one in config.backends:
        if one.url.startswith("unix:"):
            mounts[f"all://{_socket_host(one)}"] = httpx.AsyncHTTPTransport(uds=one.url.removeprefix("unix:"))
        elif one.tls_ca_file is not None:
            context = backends_module.tls_context(one)
            mounts[f"all://{httpx.URL(one.url).host}"] = httpx.AsyncHTTPTransport(verify=context)
    return httpx.AsyncClient(mounts=mounts, trust_env=False)


def _socket_host(one: BackendSettings) -> str:
    return f"{one.name}.unix.invalid".lower()


def _watched(one: BackendSettings) -> Watched:
    url = f"http://{_socket_host(one)}" if one.url.startswith("unix:") else one.url
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
