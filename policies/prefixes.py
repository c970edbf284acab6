"""Which backend holds which prompt prefix in its cache.

Intent: an agent's next turn (68k–154k prompt tokens, 86–96 % of them cached) is nearly free where its last turn ran and
a full prefill anywhere else, so the uncached input of a request differs per backend.
Reads: ``Arrived.prefixes`` (rolling fingerprints at message borders) and where requests went.
Settings: ``prefixes``.
When it is wrong: an engine evicts under memory pressure and nobody tells; ``trust`` (cached tokens reported ÷ expected,
per backend) corrects it within a few answers. Engines that report no cached tokens are trusted at 0.8.
"""

from collections import OrderedDict
from typing import Final

from policies.settings import PrefixSettings

BORDERS: Final = 12
"""Message borders looked at, longest first; a turn of a conversation usually matches two borders back."""


class Prefixes:
    """A bounded memory: fingerprint → backend → when it was last there."""

    __slots__ = ("keep_seconds", "limit", "seen")

    def __init__(self, settings: PrefixSettings) -> None:
        self.limit = settings.max_entries
        self.keep_seconds = settings.keep_seconds
        self.seen: OrderedDict[int, dict[str, float]] = OrderedDict()

    def remember(self, prefixes: tuple[tuple[int, int], ...], backend: str, at: float) -> None:
        """A prompt with these borders went to a backend."""
        seen = self.seen
        for fingerprint, _ in prefixes[-BORDERS:]:
            self._put(seen, fingerprint, backend, at)
        if len(prefixes) > BORDERS:
            self._put(seen, prefixes[0][0], backend, at)
        while len(seen) > self.limit:
            seen.popitem(last=False)

    @staticmethod
    def _put(seen: OrderedDict[int, dict[str, float]], fingerprint: int, backend: str, at: float) -> None:
        holders = seen.get(fingerprint)
        if holders is None:
            seen[fingerprint] = {backend: at}
            return
        holders.pop(backend, None)
        holders[backend] = at
        seen.move_to_end(fingerprint)

    def match(self, prefixes: tuple[tuple[int, int], ...], now: float) -> tuple[dict[str, int], str | None]:
        """Cached prompt bytes per backend, and the backend that served the longest prefix last."""
        cached: dict[str, int] = {}
        home: str | None = None
        oldest = now - self.keep_seconds
        for fingerprint, size in _borders(prefixes):
            holders = self.seen.get(fingerprint)
            if holders is None:
                continue
            latest = None
            for backend, at in holders.items():
                if at >= oldest:
                    latest = backend
                    if backend not in cached:
                        cached[backend] = size
            home = home or latest
        return cached, home

    def forget(self, backend: str) -> None:
        """A backend left or restarted: its cache is gone."""
        for fingerprint in [key for key, holders in self.seen.items() if holders.pop(backend, None) and not holders]:
            del self.seen[fingerprint]


def _borders(prefixes: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    longest_first = prefixes[: -BORDERS - 1 : -1]
    return longest_first if len(prefixes) <= BORDERS else (*longest_first, prefixes[0])
