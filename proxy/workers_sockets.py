"""Listening sockets for several workers: one group per port, one socket of it per worker.

With ``SO_REUSEPORT`` the kernel spreads *connections* over the group by a hash of both addresses, whatever the workers
do at that moment. With one inherited socket whoever wakes first accepts all that waits, and keep-alive holds a client's
whole pool there: of few connections the busiest worker gets twice its share (``docs/workers.md`` has the figures). The
parent keeps every socket open, so that connections which arrive while a worker is being restarted wait for the next one
instead of being reset.
"""

import errno
import socket
import sys

BALANCES = sys.platform == "linux"
"""Elsewhere ``SO_REUSEPORT`` sends all connections to one socket of a group; there the workers share one."""
_PORTS_TRIED = 20


def groups(host: str, port: int, workers: int) -> list[list[socket.socket]]:
    """For each worker its bound sockets, one per address of ``host``. Port 0 takes a free one, the same for all.

    Raises OSError when the port is taken or the host has no address here.
    """
    for _ in range(_PORTS_TRIED):
        try:
            return _groups(host, port, workers)
        except OSError as error:
            if port != 0 or error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no port of {host} is free on all its addresses")


def _groups(host: str, port: int, workers: int) -> list[list[socket.socket]]:
    members: list[list[socket.socket]] = [[] for _ in range(workers)]
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(infos):
        place = (str(address[0]), port, *address[2:])
        _claim(family, place)
        shared = None if BALANCES else _bound(family, place)
        for sockets in members:
            bound = shared or _bound(family, place)
            sockets.append(bound)
            port = int(bound.getsockname()[1])
            place = (place[0], port, *place[2:])
    return members


def _claim(family: int, place: tuple[object, ...]) -> None:
    """Two gateways of one user could join one group and halve each other's traffic: the port must be free first."""
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            alone.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        alone.bind(place)


def _bound(family: int, place: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if BALANCES:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    # Connections inherit it. Event loops set it only where a socket names TCP as its protocol, which this one does not.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.bind(place)
    bound.setblocking(False)
    return bound
