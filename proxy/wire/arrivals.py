"""Connections that arrive together are accepted together.

libuv accepts one connection per turn of the event loop (libuv/libuv#3696: mostly there is only one), and a turn that serves
200 streams takes milliseconds. Of 200 clients that came at once the last one waited for 200 turns: its first token came after
138 ms, and comes after 70 ms when whoever waits behind an accepted connection is accepted as well (docs/speed.md).
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

MOST: Final = 64
"""Connections accepted in one go from one socket; those under way wait meanwhile (20 µs each)."""
log = logging.getLogger("draftlane.wire")


class Arrivals:
    """The listening sockets of a server, from which it also accepts by itself. With TLS a look follows a handshake, not a connection."""

    __slots__ = ("_arriving", "_listeners", "_looking", "_protocol", "_tls", "over")

    def __init__(self) -> None:
        self._listeners: Sequence[socket.socket] = ()
        self._protocol: Callable[[], asyncio.Protocol] = asyncio.Protocol
        self._tls: ssl.SSLContext | None = None
        self._looking = False
        self._arriving: set[asyncio.Task[None]] = set()
        self.over = False
        """The server ends: who is still on the way in is to be turned away."""

    def watch(
        self, listeners: Sequence[socket.socket], protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        """From now on. The loop listens to the same sockets, which do not block, and reports whatever goes wrong with them."""
        self._listeners, self._protocol, self._tls = listeners, protocol, tls

    def end(self) -> None:
        """Take nobody any more."""
        self.over, self._listeners = True, ()

    def came(self) -> None:
        """A connection was accepted: there may be more."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for _ in range(MOST):
                try:
                    accepted, _ = listener.accept()
                except OSError:  # nobody else, or not ours to report
                    break
                task = loop.create_task(self._take(loop, accepted))
                self._arriving.add(task)
                task.add_done_callback(self._arriving.discard)

    async def _take(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(self._protocol, accepted, ssl=self._tls)
        except OSError:  # the client's: no TLS, or gone again
            accepted.close()
        except Exception:
            log.exception("a connection could not be taken")
            accepted.close()
