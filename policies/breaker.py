"""The circuit breaker of one backend, as a fold over what happened to it.

    closed ──failures in a row──▶ open ──time, or a good health check──▶ half-open ──success──▶ closed
                                    ▲                                        │
                                    └───────────── failure (twice as long) ──┘

Only faults of the backend count. A client's 4xx never does, nor a 400 because the lane speculates ("refused"); 429 and
503 say "busy", which is load, not illness. A stall opens it too when the watchdog took requests away: with nothing in
flight no byte could ever tell that it is back. While half-open only a few requests at once are let through.
Settings: ``breaker``. When it is wrong: a request that crashes every backend it touches looks like sick backends; it
takes ``failures_to_open`` of them in a row.
"""

from typing import Final

from policies.settings import BreakerSettings

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"
HEALTHY_FAULTS: Final = frozenset({"busy", "refused", "stalled"})


class Breaker:
    """State of one backend's breaker."""

    __slots__ = ("failures", "hung", "opened_for", "reopens_at", "settings", "state", "trying")

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.state = CLOSED
        self.failures = 0
        """In a row."""
        self.opened_for = 0.0
        self.reopens_at = 0.0
        """When an open breaker becomes half-open."""
        self.trying = 0
        """Requests under way while half-open."""
        self.hung = False
        """Opened by the watchdog. A hung engine often still answers health checks, so only time or bytes lift it."""

    def success(self) -> bool:
        """A request ended well. True when the state changed."""
        changed = self.state != CLOSED
        self.state, self.failures, self.opened_for, self.trying, self.hung = CLOSED, 0, 0.0, 0, False
        return changed

    def failure(self, now: float) -> bool:
        """A fault of the backend. True when the state changed."""
        self.failures += 1
        if self.state == OPEN or (self.state == CLOSED and self.failures < self.settings.failures_to_open):
            return False
        self._open(now)
        return True

    def hang(self, now: float) -> None:
        """Requests were taken away because nothing came. Opens at once: whoever was moved is proof enough."""
        self.hung = True
        if self.state != OPEN:
            self._open(now)

    def _open(self, now: float) -> None:
        longest = self.settings.longest_open_seconds
        self.opened_for = min(longest, 2.0 * self.opened_for) if self.opened_for else self.settings.open_seconds
        self.state, self.reopens_at, self.trying = OPEN, now + self.opened_for, 0

    def wake(self, now: float) -> bool:
        """Time passed. True when an open breaker became half-open."""
        if self.state != OPEN or now < self.reopens_at:
            return False
        self.state, self.trying = HALF_OPEN, 0
        return True

    def admits(self) -> bool:
        """Whether a request may be sent now."""
        return self.state == CLOSED or (self.state == HALF_OPEN and self.trying < self.settings.half_open_probes)
