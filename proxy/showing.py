"""What the control plane shows of a gateway."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from fastapi import Request

from policies.decide import decide
from policies.events import Scraped
from policies.explain import explain
from policies.snapshot import snapshot
from proxy.control import Snapshot
from proxy.errors import BadRequest
from proxy.gateway import Gateway
from proxy.metrics import Metrics
from proxy.outcome import Outcome
from proxy.safe_names import plain
from proxy.version import VERSION
from proxy.wire.headers import Headers
from proxy.wire.inbound import Head
from proxy.workers_link import Part

RECENT = 50
"""Requests shown on the dashboard."""


UNSENT = "(unsent)"
"""No request has this id: clients' ids hold no parentheses."""


class Showing:
    """See ``proxy.control.Answers``."""

    def __init__(self, gateway: Gateway, metrics: Metrics, admin_key_hash: bytes | None) -> None:
        self.admin_key_hash = admin_key_hash
        self.draining = False
        self._gateway = gateway
        self._metrics = metrics
        self._recent: deque[tuple[float, Outcome]] = deque(maxlen=RECENT)
        self._scrapes: dict[str, Scraped] = {}

    # -- listeners
    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """Requests are over."""
        now = self._gateway.now()
        self._recent.extend([(now, outcome) for outcome in outcomes])

    def scraped(self, event: Scraped) -> None:
        """A backend's metrics page was read."""
        self._scrapes[event.backend] = event

    def ready(self) -> tuple[bool, str]:
        """Whether requests can be served now, and why not."""
        if self.draining:
            return False, "shutting down"
        well = [name for name, backend in self._gateway.fleet.backends.items() if backend.breaker.admits()]
        return (True, f"{len(well)} of {len(self._gateway.backends)} backends") if well else (False, "no backend is up")

    def snapshot(self) -> Snapshot:
        """Everything that is known, as plain data."""
        state: Snapshot = snapshot(self._gateway.fleet, self._gateway.now())
        state["recent"] = [{"at": at, **plain(outcome)} for at, outcome in reversed(self._recent)]
        state["scrapes"] = [_scrape(one, state["at"]) for one in self._scrapes.values()]
        state["live"] = len(self._gateway.live)
        state["version"] = VERSION
        return state

    async def state(self) -> Snapshot:
        """See ``Answers``."""
        return self.snapshot()

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The metrics page, rendered off the loop."""
        page = await asyncio.to_thread(self._metrics.render, self.snapshot(), accept)
        return page.body, page.content_type

    def parts(self) -> Mapping[str, Part]:
        """What this process adds when another worker is asked."""
        return {}

    def models(self) -> list[dict[str, object]]:
        """Entries of ``/v1/models``."""
        return self._gateway.models.cards()

    def may_enter(self, request: Request) -> bool:
        """The client's key is right."""
        keys = self._gateway.keys
        if keys.open:
            return True
        headers = request.headers
        given = [headers.get(name) for name in ("authorization", "x-api-key")]
        return keys.name_of(*(None if value is None else value.encode("latin-1") for value in given)) is not None

    def allows(self, origin: str) -> bool:
        """See ``Answers``."""
        return self._gateway.clerk.allows(origin.encode())

    def is_surface(self, path: str) -> bool:
        """See ``Answers``."""
        return self._gateway.routes.is_surface(path)

    def judge(self, surface_path: str, body: bytes, headers: Headers) -> Snapshot:
        """See ``Answers``. The request is neither sent nor remembered."""
        gateway = self._gateway
        surface = gateway.surface_at(b"POST", surface_path.encode())
        if surface is None:
            raise BadRequest(f"{surface_path} is not a surface", param="path")
        passport = gateway.clerk.passport(Head(b"POST", surface_path.encode(), b"", headers))
        asked = surface.read(body, "application/json")
        arrived = gateway.as_arrived(surface, asked, passport, UNSENT)
        verdict = decide(gateway.fleet, arrived)
        return {
            "verdict": type(verdict).__name__,
            **verdict._asdict(),
            "explanation": explain(verdict, gateway.fleet),
        }


def _scrape(seen: Scraped, now: float) -> dict[str, object]:
    return {
        "name": seen.backend,
        "running": seen.running,
        "waiting": seen.waiting,
        "cache_usage": seen.cache_usage,
        "age_seconds": now - seen.at,
    }
