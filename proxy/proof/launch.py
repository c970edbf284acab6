"""Start an engine from a command line, wait until it serves, and stop it with all its children."""

import asyncio
import os
import shlex
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO

import httpx

from proxy.discovery import get

ASK_EVERY_SECONDS = 0.25
STOP_SECONDS = 20.0


class EngineFailedError(Exception):
    """An engine ended or did not serve in time; the message ends with what it said last."""


def filled(template: str, values: Mapping[str, str]) -> str:
    """Replace ``{name}``; other braces (JSON in vLLM's flags) stay. Raises KeyError when a name is not in it."""
    for name, value in values.items():
        if "{" + name + "}" not in template:
            raise KeyError(name)
        template = template.replace("{" + name + "}", value)
    return template


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def started(command: str, port: int, patience_seconds: float) -> AsyncIterator[str]:
    """Run a command (no shell) until the block ends; gives the URL once it serves. Raises EngineFailedError."""
    with tempfile.TemporaryFile() as log:
        process = await _spawn(command, log)
        try:
            url = f"http://127.0.0.1:{port}"
            await _wait(process, url, patience_seconds, log)
            yield url
        finally:
            await _stop(process)


async def _spawn(command: str, log: IO[bytes]) -> asyncio.subprocess.Process:
    # Its own session, so that its children can be ended with it; an open standard input, since some engines end with it.
    try:
        return await asyncio.create_subprocess_exec(
            *shlex.split(command), stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise EngineFailedError(f"{command}: {error}") from error


async def _wait(process: asyncio.subprocess.Process, url: str, patience_seconds: float, log: IO[bytes]) -> None:
    try:
        async with asyncio.timeout(patience_seconds), httpx.AsyncClient() as http:
            while not await _serves(http, url):
                if process.returncode is not None:
                    raise EngineFailedError(f"the engine ended with status {process.returncode}: {_last_words(log)}")
                await asyncio.sleep(ASK_EVERY_SECONDS)
    except TimeoutError as error:
        raise EngineFailedError(f"not serving after {patience_seconds:g} s: {_last_words(log)}") from error


async def _serves(http: httpx.AsyncClient, url: str) -> bool:
    """llama.cpp lists its model while it still loads it, and says 503 under ``/health``."""
    models, health = [await get(http, url + path, {}, 5.0) for path in ("/v1/models", "/health")]
    return models.status == 200 and health.status in (200, 404)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    for sign, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
            return


def _last_words(log: IO[bytes]) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
