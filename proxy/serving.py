"""Running a gateway in this process: the application, its ports, and the signals."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from proxy.app import Application
from proxy.config import Config
from proxy.config_error import ConfigError
from proxy.control import admin_app, dashboard, public_app
from proxy.listen import GracefulServer, admin_server, port_of, public_server
from proxy.wire.portable import Portable
from proxy.workers_link import Siblings
from proxy.workers_sockets import groups

log = logging.getLogger("draftlane")


class Place(NamedTuple):
    """What a worker gets from its parent."""

    siblings: Siblings
    public: list[socket.socket]
    """Bound sockets to listen on."""
    admin: list[socket.socket]


class Ports(NamedTuple):
    """Where a running gateway listens."""

    public: int
    admin: int | None


@contextlib.asynccontextmanager
async def serving(
    config: Config, place: Place | None = None
) -> AsyncIterator[tuple[Application, Ports, GracefulServer]]:
    """A gateway that serves for as long as the block lasts. Raises ConfigError when it cannot listen.

    ``place`` is that of one of several workers.
    """
    sockets = _listening(config) if place is None else [place.public, place.admin]
    app = Application(config, None if place is None else place.siblings)
    async with app.running():
        public, admin = _servers(config, app)
        servers = [server for server in (public, admin) if server is not None]
        tasks = [asyncio.create_task(server.serve(own)) for server, own in zip(servers, sockets, strict=False)]
        try:
            await _started(servers, tasks)
            yield app, Ports(port_of(public), None if admin is None else port_of(admin)), public
        finally:
            for server, task in zip(servers, tasks, strict=True):  # the admin port last: until then it says "not ready"
                server.should_exit = True
                await asyncio.gather(task, return_exceptions=True)


def _listening(config: Config) -> list[list[socket.socket]]:
    """Sockets for both ports, bound before anything is started that would have to be stopped again."""
    server = config.server
    bound = [_bound("port", server.host, server.port)]
    if server.admin_port is not None:
        bound.append(_bound("admin_port", server.admin_host, server.admin_port))
    return bound


def _bound(setting: str, host: str, port: int) -> list[socket.socket]:
    try:
        return groups(host, port, 1)[0]
    except OSError as error:
        raise ConfigError([f"server.{setting}: cannot listen on {host}:{port}: {error.strerror or error}"]) from error


def _servers(config: Config, app: Application) -> tuple[GracefulServer, GracefulServer | None]:
    def draining() -> None:
        app.showing.draining = True

    on_public = config.server.admin_on_public_port
    control = public_app(app.showing, on_public)
    public = public_server(config, app.gateway, Portable(app.gateway, control), draining)
    if on_public:
        dashboard(control)
    if config.server.admin_port is None:
        return public, None
    admin = admin_app(app.showing)
    dashboard(admin)
    return public, admin_server(config, admin)


async def _started(servers: list[GracefulServer], tasks: list[asyncio.Task[None]]) -> None:
    while not all(server.started for server in servers):
        for task in tasks:
            if task.done():
                task.result()
                raise SystemExit(1)
        await asyncio.sleep(0.01)


def settle_memory() -> None:
    """What was made by now stays: the collector need not walk it again, which stops all streams for tens of milliseconds."""
    gc.collect()
    gc.freeze()


async def serve_forever(config: Config, announce: Callable[[Application, Ports], None]) -> int:
    """Serve until SIGTERM or SIGINT, then let answers finish; a second signal ends at once. The exit status."""
    over = asyncio.Event()
    up: list[tuple[Application, GracefulServer]] = []

    def told() -> None:
        at_once = over.is_set()
        over.set()
        for app, server in up:
            server.force_exit = at_once
            log.info("shutting down, %s", _still(len(app.gateway.live), config.server.grace_seconds, at_once))

    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, told)  # before anybody can be connected: a signal then would kill without grace
    async with serving(config) as (app, ports, server):
        up.append((app, server))
        announce(app, ports)
        settle_memory()
        await over.wait()
    return 0


def _still(requests: int, grace_seconds: float, at_once: bool) -> str:
    if not requests:
        return "no request is running"
    if at_once:
        return f"cutting {requests} running requests"
    return f"{requests} requests may finish within {grace_seconds:g} s; a second signal cuts them"
