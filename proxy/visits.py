"""A client for visits to backends beside the traffic: discovery, health, metrics.

httpx knows neither ``unix:`` URLs nor one set of certificate authorities per host. Both become transports mounted on
the backend's address, so that whoever visits has one client and plain URLs.
"""

import ssl
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from proxy.backends import tls_context
from proxy.config import Backend


class Visits(NamedTuple):
    """The client, and under which URL it reaches each backend (by name). Close the client."""

    client: httpx.AsyncClient
    urls: dict[str, str]


def visits(backends: Sequence[Backend], timeout_seconds: float) -> Visits:
    """One client for all these backends. Raises OSError or ssl.SSLError when a ``tls_ca_file`` is none."""
    urls, mounts = {}, {}
    for number, backend in enumerate(backends, 1):
        urls[backend.name] = backend.url
        if backend.url.startswith("unix:"):
            urls[backend.name] = f"http://unix-{number}.localhost"
            mounts[f"all://unix-{number}.localhost"] = _transport(uds=backend.url.removeprefix("unix:"))
        elif backend.tls_ca_file is not None:
            mounts[f"all://{urlsplit(backend.url).netloc}"] = _transport(verify=tls_context(backend))
    # trust_env=False: a proxy variable meant for the outside world must not catch visits to engines next door.
    return Visits(httpx.AsyncClient(timeout=timeout_seconds, mounts=mounts, trust_env=False), urls)


def _transport(uds: str | None = None, verify: ssl.SSLContext | bool = True) -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(uds=uds, verify=verify)
