"""Runs simulated engines on real sockets: for ever for the command, or for as long as a block for tests and demos."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from proxy.simulated.app import SimulatedEngine
from proxy.simulated.character import Character

_KEEP_ALIVE_SECONDS = 5
"""What real engines do; gateways have to live with it."""


class _Quiet(uvicorn.Server):
    """A server inside someone else's process, whose signals are not its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def server(character: Character, host: str, port: int, embedded: bool = False) -> tuple[uvicorn.Server, socket.socket]:
    """A server and its bound socket; port 0 takes a free one. Raises OSError when the port is taken."""
    listening = socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
    )
    # asyncio leaves Nagle on where a socket does not name TCP as its protocol: 40 ms on streams. Connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        SimulatedEngine(character),
        host=host,
        port=port,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    return (_Quiet if embedded else uvicorn.Server)(config), listening


@asynccontextmanager
async def simulated(character: Character | None = None, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """A simulated engine on this event loop; gives its address and ends with the block."""
    serving, listening = server(character or Character(), host, port, embedded=True)
    task = asyncio.create_task(serving.serve(sockets=[listening]))
    try:
        while not serving.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        yield f"http://{host}:{listening.getsockname()[1]}"
    finally:
        serving.should_exit = True
        await task
        listening.close()
