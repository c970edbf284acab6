"""A gateway in one of its two server forms, with time under control and nothing running beside the requests."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from policies.decision import Verdict
from policies.events import Event, Failed, Joined
from proxy import config as configuration
from proxy.backends import build
from proxy.config import Config
from proxy.control import public_app
from proxy.gateway import Gateway
from proxy.keys import Keys
from proxy.listen import GracefulServer, port_of, public_server
from proxy.metrics import Metrics
from proxy.outcome import Outcome
from proxy.showing import Showing
from proxy.wire.portable import Portable
from proxy.workers_sockets import groups
from tests.scripted.backend import Script, ScriptedBackend
from tests.scripted.client import Answer, Client, connected
from tests.scripted.clock import Clock, until
from tests.scripted.scripts import answer

GUARD_SECONDS = float(os.environ.get("GUARD", "60"))
"""A test that waits for what never comes ends here (uvloop swallows what pytest-timeout raises)."""
FORMS = ("fast", "portable")
"""The protocol of ``proxy.wire.server``, and the ASGI application under stock uvicorn with h11."""


class TimedSite:
    """What ``proxy.app.Application`` puts together, with a test's clock and nothing that runs by itself."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.gateway = Gateway(config, build(config), Keys(config.keys.sha256, config.keys.file), clock)
        self.metrics = Metrics("test", config.policy.name)
        admin_key = config.server.admin_key_sha256
        self.showing = Showing(self.gateway, self.metrics, None if admin_key is None else bytes.fromhex(admin_key))
        self.outcomes: list[Outcome] = []
        self.gateway.began = self.metrics.started
        self.gateway.ended = self._ended
        for one in config.backends:
            self.gateway.introduce(Joined(clock(), one.name, one.lane, one.models, one.engine or "unknown"))

    def _ended(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes
        self.metrics.ended(outcomes)
        self.showing.ended(outcomes)


class Rig:
    """A running gateway as a test sees it."""

    def __init__(self, site: TimedSite, form: str, clock: Clock, port: int, server: GracefulServer) -> None:
        self.site = site
        self.form = form
        self.clock = clock
        self.port = port
        self.server = server
        self._said: list[Event | Verdict] = []
        site.gateway.listeners.append(self._said.extend)

    @property
    def gateway(self) -> Gateway:
        """The gateway."""
        return self.site.gateway

    @property
    def events(self) -> list[Event | Verdict]:
        """All events and decisions so far."""
        self.gateway.tell()
        return self._said

    def later(self, seconds: float) -> None:
        """Let time pass, and the heartbeat notice."""
        self.clock.advance(seconds)
        self.gateway.tick()

    def of(self, kind: type[Event]) -> list[Any]:
        """Events of a kind, in order."""
        return [event for event in self.events if type(event) is kind]

    @property
    def faults(self) -> list[tuple[str, str]]:
        """(backend, fault) of every failed attempt."""
        return [(event.backend, event.fault) for event in self.of(Failed)]

    async def at_rest(self) -> None:
        """Wait until no request is under way, and hold every counter to that."""
        await until(lambda: not self.gateway.live and not self.gateway._ids)
        await until(lambda: not any(self.site.metrics._running.values()))
        fleet = self.gateway.fleet
        assert {name: backend.in_flight for name, backend in fleet.backends.items()} == dict.fromkeys(fleet.backends, 0)
        assert len(fleet.live) == 0


def config_for(urls: Mapping[str, str], server: Mapping[str, Any] | None = None, **more: Any) -> Config:
    """Backends by name; those whose name starts with ``spec`` are of the speculative lane and come first."""
    backends = [
        {"name": name, "url": url, "lane": "speculative" if name.startswith("spec") else "plain", "models": ["m"]}
        | more.get(name, {})
        for name, url in urls.items()
    ]
    rest = {key: value for key, value in more.items() if key not in urls}
    policy = {"name": "all-speculative"} | rest.pop("policy", {})
    settings = {"backends": backends, "policy": policy, "server": {"port": 0, **(server or {})}, **rest}
    return configuration._checked(settings, "test", None)


def _server(config: Config, site: TimedSite, form: str) -> GracefulServer:
    control = public_app(site.showing, config.server.admin_on_public_port)

    def draining() -> None:
        site.showing.draining = True

    server = public_server(config, site.gateway, Portable(site.gateway, control), draining)
    if form == "portable":
        server.config.http = "h11"
        server.config.h11_max_incomplete_event_size = config.server.max_header_bytes
    return server


@contextlib.asynccontextmanager
async def running(config: Config, form: str, guard_seconds: float | None = GUARD_SECONDS) -> AsyncIterator[Rig]:
    """A gateway for as long as the block lasts; at its end every request must be over."""
    clock = Clock()
    site = TimedSite(config, clock)
    server = _server(config, site, form)
    task = asyncio.create_task(server.serve(groups(config.server.host, config.server.port, 1)[0]))
    await until(lambda: server.started or task.done())
    try:
        async with asyncio.timeout(guard_seconds):
            yield Rig(site, form, clock, port_of(server), server)
    finally:
        server.should_exit = server.force_exit = True
        await task
        site.gateway.close()


class Scene(NamedTuple):
    """A gateway with one backend behind it and one client in front."""

    rig: Rig
    backend: ScriptedBackend
    client: Client

    async def ask(self, request: bytes, method: str = "POST") -> Answer:
        """Send a request over the client's connection, read its answer."""
        return await self.client.ask(request, method)


@contextlib.asynccontextmanager
async def scene(
    form: str, *scripts: Script, server: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[Scene]:
    """One plain backend that plays these scripts; at the end every counter must be back at zero."""
    backend = ScriptedBackend(*(scripts or (answer(),)))
    async with backend.listening(), running(config_for({"plain": backend.url}, server, **more), form) as rig:
        async with connected(rig.port) as client:
            yield Scene(rig, backend, client)
        await rig.at_rest()
