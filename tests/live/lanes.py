"""A whole gateway in this process, on real ports, before simulated engines on real ports."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from proxy.app import Application
from proxy.config import Config
from proxy.outcome import Outcome
from proxy.serving import Ports, serving
from proxy.simulated.character import Character
from proxy.simulated.running import simulated

PLAIN = Character(step_ms=1.0, token_us=0.0, draft_ms=0.05, prefill_us=0.5)
SPECULATIVE = replace(PLAIN, depth=3, acceptance=0.9)
MODEL = PLAIN.model
ADMIN_KEY = "the-admin-key-of-the-tests"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}


def configured(settings: Mapping[str, Any], folder: Path | None = None) -> Config:
    """A configuration as from a file in ``folder``; free ports, and an admin key."""
    server = {"port": 0, "admin_port": 0, "admin_key_sha256": digest(ADMIN_KEY), "grace_seconds": 1.0}
    said = {**settings, "server": server | dict(settings.get("server", {}))}
    return Config.model_validate_json(json.dumps(said), context={"folder": folder})


def digest(key: str) -> str:
    """How a key stands in a configuration."""
    return sha256(key.encode()).hexdigest()


def two(
    speculative: str,
    plain: str,
    of_speculative: Mapping[str, Any] | None = None,
    of_plain: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The ``backends`` of two lanes, each with further settings."""
    lanes = (("speculative", speculative, of_speculative), ("plain", plain, of_plain))
    return [{"name": lane, "url": url, "lane": lane, **(more or {})} for lane, url, more in lanes]


class Live(NamedTuple):
    """A running gateway, and its two ports as clients."""

    app: Application
    ports: Ports
    public: httpx.AsyncClient
    admin: httpx.AsyncClient
    outcomes: list[Outcome]
    """How every request ended, in order."""

    async def chat(
        self, prompt: str = "Tell me.", headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """One chat request; ``more`` goes into its body."""
        body = {"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": prompt}], **more}
        return await self.public.post("/v1/chat/completions", json=body, headers=headers)

    async def state(self) -> dict[str, Any]:
        """``/admin/state``."""
        answer = await self.admin.get("/admin/state", headers=ADMIN)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told


@contextlib.asynccontextmanager
async def gateway(config: Config) -> AsyncIterator[Live]:
    """A gateway for as long as the block lasts."""
    async with serving(config) as (app, ports, _):
        outcomes: list[Outcome] = []
        app.farewells.append(outcomes.extend)
        async with _client(ports.public) as public, _client(ports.admin or ports.public) as admin:
            yield Live(app, ports, public, admin, outcomes)


def _client(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False, timeout=60)


@contextlib.asynccontextmanager
async def engines(speculative: Character = SPECULATIVE, plain: Character = PLAIN) -> AsyncIterator[tuple[str, str]]:
    """The addresses of two simulated engines."""
    async with simulated(speculative) as first, simulated(plain) as second:
        yield first, second


@contextlib.asynccontextmanager
async def both_lanes(
    speculative: Character = SPECULATIVE, plain: Character = PLAIN, **settings: Any
) -> AsyncIterator[Live]:
    """A gateway before two simulated engines; ``settings`` as in a configuration file."""
    async with contextlib.AsyncExitStack() as stack:
        first, second = await stack.enter_async_context(engines(speculative, plain))
        yield await stack.enter_async_context(gateway(configured({"backends": two(first, second), **settings})))
