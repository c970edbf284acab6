"""A gateway in one of its two server forms, with time under control and nothing running beside the requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import uvicorn

from policies.decision import Verdict
from policies.events import Event, Failed, Joined
from proxy import config as configuration
from proxy.app import Application
from proxy.config import Config
from proxy.control import public_app
from proxy.gateway import Gateway
from proxy.listen import GracefulServer, port_of, public_server
from proxy.wire.portable import Portable
from tests.scripted.clock import Clock, until

FORMS = ("fast", "portable")
"""The protocol of ``proxy.wire.server``, and the ASGI application under stock uvicorn with h11."""


class TimedGateway(Gateway):
    """The gateway with a test's clock."""

    clock: Clock

    def now(self) -> float:
        return self.clock()


class TimedApplication(Application):
    """The application around a ``TimedGateway``; it is not run, so it neither ticks nor watches by itself."""

    def __init__(self, config: Config, clock: Clock) -> None:
        super().__init__(config)
        gateway = TimedGateway(config, self.gateway.backends, self.gateway.keys)
        gateway.clock = clock
        self.gateway = gateway
        self._connect()
        self._introduce_configured()


class Rig:
    """A running gateway as a test sees it."""

    def __init__(self, app: TimedApplication, form: str, clock: Clock, port: int, server: uvicorn.Server) -> None:
        self.app = app
        self.form = form
        self.clock = clock
        self.port = port
        self.server = server
        self.events: list[Event] = []
        self.verdicts: list[Verdict] = []
        app.gateway.listeners.append(self.events.append)

    @property
    def gateway(self) -> Gateway:
        """The gateway."""
        return self.app.gateway

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
        await until(lambda: not any(self.app.metrics._running.values()))
        fleet = self.gateway.fleet
        assert {name: backend.in_flight for name, backend in fleet.backends.items()} == dict.fromkeys(fleet.backends, 0)
        assert len(fleet.live) == 0


def config_for(
    urls: Mapping[str, str], server: Mapping[str, Any] | None = None, **more: Any
) -> Config:
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


def _server(config: Config, app: TimedApplication, form: str) -> GracefulServer:
    control = public_app(app, config.server.admin_on_public_port)
    portable = Portable(app.gateway, control)

    def draining() -> None:
        app.draining = True

    server = public_server(config, app.gateway, portable, draining)
    if form == "portable":
        server.config.http = "h11"
        server.config.h11_max_incomplete_event_size = config.server.max_header_bytes
    return server


@contextlib.asynccontextmanager
async def running(config: Config, form: str) -> AsyncIterator[Rig]:
    """A gateway for as long as the block lasts; at its end every request must be over."""
    clock = Clock()
    app = TimedApplication(config, clock)
    server = _server(config, app, form)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started or task.done())
    try:
        yield Rig(app, form, clock, port_of(server), server)
    finally:
        server.should_exit = server.force_exit = True
        await task
        app.gateway.close()
        await app._client.aclose()


def spec_first(urls: Sequence[str]) -> dict[str, str]:
    """Names for one or two backends, in the order in which they are asked."""
    return dict(zip(("spec", "plain"), urls, strict=False))


def joined(rig: Rig, name: str, **more: Any) -> None:
    """Discovery learnt something of a backend."""
    backend = rig.gateway.backends[name]
    rig.gateway.introduce(Joined(rig.clock(), name, backend.lane, ("m",))._replace(**more))
