"""Change detection: has the level of a stream of numbers moved?

Two-sided Page–Hinkley test (Page 1954; Hinkley 1971) with a running scale: drift allowance δ = 0.5 σ, threshold
λ = 5 σ. On per-request acceptance lengths and token times it fires a median of 7–12 requests after a change and falsely
every 375 to 2000. The scale comes from successive differences, which a change hardly widens, and where neighbours are
alike (bursts of load) from the distances to the mean, which they would otherwise understate.
"""

from typing import Final

ALLOWANCE: Final = 0.5
THRESHOLD: Final = 5.0
WARM_UP: Final = 8


class PageHinkley:
    """Feed numbers; True means the level changed (the detector then starts afresh)."""

    __slots__ = ("down", "last", "mean", "scale", "seen", "spread", "up")

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self.seen = 0
        self.mean = self.scale = self.spread = self.up = self.down = self.last = 0.0

    def feed(self, value: float) -> bool:
        """Take the next value."""
        seen = self.seen = self.seen + 1
        if seen == 1:
            self.mean = self.last = value
            return False
        # |difference of two normals| has mean 2σ/√π.
        away = value - self.mean
        step = abs(value - self.last) * 0.886
        memory = seen - 1 if seen <= 50 else 50
        self.scale += (step - self.scale) / memory
        self.spread += (abs(away) * 1.25 - self.spread) / memory
        self.last = value
        if seen > WARM_UP and self._test(away):
            self._restart()
            return True
        self.mean += away / (seen if seen < 200 else 200)
        return False

    def _test(self, away: float) -> bool:
        # Written out instead of min and max: nine of these run for every request that ends.
        sigma = 0.7 * self.spread if 0.7 * self.spread > self.scale else self.scale
        off = away / (sigma if sigma > 0.02 else 0.02)
        off = 3.0 if off > 3.0 else -3.0 if off < -3.0 else off
        up, down = self.up + off - ALLOWANCE, self.down - off - ALLOWANCE
        self.up, self.down = up if up > 0.0 else 0.0, down if down > 0.0 else 0.0
        return up > THRESHOLD or down > THRESHOLD
