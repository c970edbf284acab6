"""Listening: uvicorn's server with our protocol, and a shutdown that cuts no stream before its time."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from proxy.config import Config
from proxy.wire.arrivals import Arrivals
from proxy.wire.door import Door
from proxy.wire.portable import App
from proxy.wire.server import GatewayProtocol, bound_to

ADMIN_GRACE_SECONDS = 5
"""Nothing on the admin port takes longer, and a reader who does not read must not keep the process."""
log = logging.getLogger("draftlane")


class GracefulServer(uvicorn.Server):
    """uvicorn cancels ASGI tasks at the end of the grace period; what runs on the fast way is cut here."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_exit: Callable[[], None],
        client_seconds: float = 60.0,
        arrivals: Arrivals | None = None,
    ) -> None:
        """``client_seconds``: patience with clients that are slow to send their request. ``arrivals``: that of its protocol."""
        super().__init__(config)
        self._on_exit = on_exit
        self._client_seconds = client_seconds
        self._arrivals = arrivals or Arrivals()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; of what arrives at sockets of ours, all at once."""
        await super().startup(sockets)
        self._arrivals.watch(sockets or (), self._protocol, self.config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn makes it
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, says uvicorn."""
        if counter % 10 == 0:
            self.lose_patience(asyncio.get_running_loop().time() - self._client_seconds)
        return await super().on_tick(counter)

    def lose_patience(self, oldest: float) -> None:
        """Turn away clients that have kept us waiting since before ``oldest`` (the loop's time)."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, GatewayProtocol):
                connection.lose_patience(oldest)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are ``proxy.serving``'s: uvicorn would raise them again before the journal is flushed."""
        yield

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop accepting, let answers finish, cut the rest when the grace period ends."""
        self._on_exit()
        self._arrivals.end()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            if isinstance(connection, GatewayProtocol):
                connection.cut()
        await asyncio.sleep(0)


def public_server(config: Config, door: Door, app: App, on_exit: Callable[[], None]) -> GracefulServer:
    """The clients' port."""
    server, arrivals = config.server, Arrivals()
    settings = uvicorn.Config(
        app,
        host=server.host,
        port=server.port,
        http=bound_to(door, arrivals),
        ssl_certfile=server.tls_cert_file,
        ssl_keyfile=server.tls_key_file,
        timeout_keep_alive=round(server.keep_alive_seconds),
        timeout_graceful_shutdown=round(server.grace_seconds),
        **_common(),
    )
    return GracefulServer(settings, on_exit, config.timeouts.client_seconds, arrivals)


def admin_server(config: Config, app: App) -> GracefulServer | None:
    """The operators' port, where one is configured."""
    server = config.server
    if server.admin_port is None:
        return None
    settings = uvicorn.Config(
        app, host=server.admin_host, port=server.admin_port, timeout_graceful_shutdown=ADMIN_GRACE_SECONDS, **_common()
    )
    return GracefulServer(settings, lambda: None)


def _common() -> dict[str, Any]:
    return {
        "loop": "uvloop",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "ws": "none",
        "backlog": 2048,
    }


def port_of(server: uvicorn.Server) -> int:
    """The port a started server listens on (port 0 asks the system for a free one)."""
    return int(server.servers[0].sockets[0].getsockname()[1])
