"""What the judgement knows, and what it expects of a request. ``policies.fleet`` moves it."""

from collections import deque
from typing import Final

from policies.applications import Applications
from policies.backend import Backend
from policies.breaker import OPEN
from policies.events import (
    Arrived,
)
from policies.gain import Verdicts
from policies.inputs import Inputs
from policies.lengths import Lengths
from policies.lesson import Lesson
from policies.live import Live
from policies.peers import Heard
from policies.prefixes import Prefixes
from policies.settings import PolicySettings
from policies.workload import gain_class

PROMPTS: Final = 20_000
"""Prompt fingerprints remembered to tell repeats."""
OUTBOX: Final = 4_096
"""Lessons kept for the other replicas until they are taken."""


class Fleet:
    """One mutable value. Read it freely; change it by ``advance`` only."""

    __slots__ = (
        "applications",
        "backends",
        "cold",
        "earlier_prompts",
        "heard",
        "inputs",
        "lengths",
        "live",
        "now",
        "outbox",
        "prefixes",
        "presumed",
        "prompts",
        "ready",
        "retries",
        "settings",
        "touchy",
        "turn",
        "verdicts",
        "wake_at",
    )

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.now = 0.0
        """Latest time any event told."""
        self.backends: dict[str, Backend] = {}
        """In order of joining, which also breaks ties."""
        self.live: dict[str, Live] = {}
        self.lengths = Lengths(settings.predictor)
        self.inputs = Inputs(settings.predictor)
        self.prefixes = Prefixes(settings.prefixes)
        self.verdicts = Verdicts(settings.verdict)
        self.applications = Applications()
        self.prompts: dict[int, None] = {}
        self.earlier_prompts: dict[int, None] = {}
        """Two generations of prompt fingerprints: cheaper than evicting one by one."""
        self.presumed: list[tuple[float, str]] = []
        """Heap of (time, id): when an answer that does not stream probably has its first token."""
        self.heard: dict[str, Heard] = {}
        self.outbox: deque[Lesson] = deque(maxlen=OUTBOX)
        """Lessons of this replica, for the others to learn; whoever shares takes them from the left."""
        self.ready: dict[str, tuple[Backend, ...]] = {}
        """Cache of ``decide.candidates`` per model; emptied whenever any backend's health changes."""
        self.wake_at = float("inf")
        """When the next resting or busy backend may be looked at again."""
        self.retries = float(settings.admission.retry_burst)
        """Retries that may happen now."""
        self.cold = True
        """Some backend is not warm; while False nobody needs to look."""
        self.touchy = frozenset[str]()
        """Features that any backend refuses."""
        self.turn = 0
        """Requests dispatched; the round of ``round-robin``."""


def take_stock(fleet: Fleet) -> None:
    """Renew what is cached about all backends together: after one joined, left, warmed up or refused something."""
    backends = fleet.backends.values()
    fleet.cold = not all(backend.warm for backend in backends)
    fleet.touchy = frozenset[str]().union(*[backend.refuses for backend in backends])
    fleet.ready.clear()


def health_changed(fleet: Fleet) -> None:
    """Some backend's health changed: candidates are looked up anew, and the next one to wake is found."""
    fleet.ready.clear()
    wake_at = float("inf")
    for backend in fleet.backends.values():
        if backend.breaker.state == OPEN:
            wake_at = min(wake_at, backend.breaker.reopens_at)
        if backend.busy_until > fleet.now:
            wake_at = min(wake_at, backend.busy_until)
    fleet.wake_at = wake_at


def assess(fleet: Fleet, arrived: Arrived) -> Live:
    """What to expect of a request. Changes nothing."""
    live = Live(arrived)
    live.input_tokens = fleet.inputs.estimate(arrived)
    predicted = fleet.lengths.predict(arrived, live.input_tokens)
    live.output_tokens, live.output_level, live.output_source = predicted
    live.repeated = _seen(fleet, arrived.fingerprint)
    live.gain_class = gain_class(arrived, live.repeated)
    _find_cached(fleet, live)
    return live


def _find_cached(fleet: Fleet, live: Live) -> None:
    arrived = live.arrived
    if not arrived.prefixes:
        share = fleet.inputs.cached_share(arrived)
        if share > 0.0:
            live.cached = dict.fromkeys(fleet.backends, share * live.input_tokens)
        return
    bytes_cached, live.home = fleet.prefixes.match(arrived.prefixes, arrived.at)
    if bytes_cached:
        per_byte, most = live.input_tokens / max(1, arrived.prompt_bytes), max(0.0, live.input_tokens - 1.0)
        backends = fleet.backends
        live.cached = {
            name: min(most, size * per_byte * backends[name].cache_trust)
            for name, size in bytes_cached.items()
            if name in backends
        }


def _seen(fleet: Fleet, fingerprint: int) -> bool:
    return fingerprint != 0 and (fingerprint in fleet.prompts or fingerprint in fleet.earlier_prompts)
