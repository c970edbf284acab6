"""``draftlane serve``: the gateway itself."""

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from proxy import config as configuration
from proxy import workers
from proxy.config import Config
from proxy.llama import cache_folder
from proxy.serving import Ports, serve_forever
from proxy.version import compiled

log = logging.getLogger("draftlane")


def serve(
    config: Annotated[Path | None, typer.Option("-c", "--config", help="Configuration file.")] = None,
    speculative: Annotated[list[str] | None, typer.Option(help="URL of a backend that speculates.")] = None,
    plain: Annotated[list[str] | None, typer.Option(help="URL of a backend that does not.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 for a free one.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that share the port.")] = None,
) -> None:
    """Run the gateway, from a file or from nothing but backend URLs."""
    settings = _settings(config, speculative or [], plain or [])
    changed = {"host": host, "port": port, "workers": workers}
    given = {name: value for name, value in changed.items() if value is not None}
    raise typer.Exit(run(configuration.with_server(settings, given)))


def _settings(file: Path | None, speculative: list[str], plain: list[str]) -> Config:
    if file is not None and (speculative or plain):
        raise typer.BadParameter("give either -c FILE or --speculative/--plain URLs, not both")
    if file is not None:
        return configuration.load(file)
    return configuration.from_urls(speculative, plain, {"admin_port": 0, "admin_key_file": str(own_admin_key())})


def own_admin_key() -> Path:
    """A file with an admin key made once for this user: without a configuration there is nobody who set one."""
    file = cache_folder() / "admin.key"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(24))
    return file


def run(config: Config) -> int:
    """Run until a signal; the exit status."""
    if config.server.workers > 1:
        return workers.run(config, lambda ports: _announce(config, ports))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve_forever(config, lambda _, ports: _announce(config, ports)))


def _announce(config: Config, ports: Ports) -> None:
    server = config.server
    several = f", {server.workers} workers" if server.workers > 1 else ""
    log.info("listening on http%s://%s:%d%s", "s" if server.tls_cert_file else "", server.host, ports.public, several)
    if ports.admin is not None:
        log.info(
            "dashboard on http://%s:%d/dashboard%s",
            server.admin_host,
            ports.admin,
            f", admin key in {server.admin_key_file}" if server.admin_key_file else "",
        )
    if not compiled():
        log.info("running from source; compiled (docs/speed.md), a request costs two fifths less")
    for backend in config.backends:
        log.info("backend %s: %s lane at %s", backend.name, backend.lane, backend.url)
