"""The backends as the relay meets them: where each listens, what its heads carry, what its engine is like."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from proxy.config import Backend as BackendSettings
from proxy.config import Config
from proxy.engines import ENGINES
from proxy.engines.base import Discovered, Engine
from proxy.wire.client import Address, Pool
from proxy.wire.headers import KEYS, Upstream


@dataclass(slots=True)
class Backend:
    """One engine URL at run time."""

    name: str
    lane: str
    settings: BackendSettings
    pool: Pool
    upstream: Upstream
    engine: Engine
    takes_usage: bool
    """``stream_options.include_usage`` may be injected."""
    discovered: Discovered | None = None
    renames: Mapping[str, str] = field(default_factory=dict)

    def learn(self, discovered: Discovered) -> None:
        """Take over what the live backend said of itself."""
        self.discovered = discovered
        if self.settings.engine is None:
            self.engine = ENGINES[discovered.engine]
        if self.settings.takes_usage is None:
            self.takes_usage = self.engine.takes_usage


def build(config: Config) -> dict[str, Backend]:
    """All configured backends by name, in the order of the configuration."""
    return {settings.name: _one(settings, config) for settings in config.backends}


def _one(settings: BackendSettings, config: Config) -> Backend:
    engine = ENGINES[settings.engine or "unknown"]
    timeouts = config.timeouts
    address, host, base = _address(settings)
    own = {name.encode(): value.encode() for name, value in settings.request_headers().items()}
    host = own.pop(b"host", host)
    replaced = frozenset(own) | (frozenset() if config.forward_client_key and b"authorization" not in own else KEYS)
    return Backend(
        name=settings.name,
        lane=settings.lane,
        settings=settings,
        pool=Pool(address, timeouts.pool_idle_seconds),
        upstream=Upstream(host, base, b"".join(b"%b: %b\r\n" % item for item in own.items()), replaced),
        engine=engine,
        takes_usage=engine.takes_usage if settings.takes_usage is None else settings.takes_usage,
        renames=settings.renames,
    )


def _address(settings: BackendSettings) -> tuple[Address, bytes, bytes]:
    """Where to connect, the Host header, the base path."""
    url = settings.url
    if url.startswith("unix:"):
        return Address("", 0, path=url.removeprefix("unix:")), b"localhost", b""
    parts = urlsplit(url)
    tls = tls_context(settings) if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    address = Address(parts.hostname or "", port, tls=tls)
    return address, parts.netloc.rpartition("@")[2].encode(), parts.path.rstrip("/").encode()


def tls_context(settings: BackendSettings) -> ssl.SSLContext:
    """Whom to trust for this backend."""
    context = ssl.create_default_context(cafile=settings.tls_ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
