"""Weighted least squares with exponential forgetting and priors that never fade, for two and three parameters.

The normal equations are kept as sums; solving them adds the prior as one more observation per parameter (Tikhonov 1963).
"""

from typing import Final

FORGET: Final = 0.99
"""Per observation; about 100 observations of memory."""

Prior = tuple[float, float]
"""Mean and standard deviation."""


class Ridge:
    """y ≈ p + q·x."""

    __slots__ = ("a11", "a12", "a22", "seen", "v1", "v2")

    def __init__(self) -> None:
        self.a11 = self.a12 = self.a22 = self.v1 = self.v2 = 0.0
        self.seen = 0

    def add(self, x: float, y: float, weight: float) -> None:
        """Observe y at x."""
        self.a11 = FORGET * self.a11 + weight
        self.a12 = FORGET * self.a12 + weight * x
        self.a22 = FORGET * self.a22 + weight * x * x
        self.v1 = FORGET * self.v1 + weight * y
        self.v2 = FORGET * self.v2 + weight * x * y
        self.seen += 1

    def solve(self, first: float, first_sd: float, second: float, second_sd: float) -> tuple[float, float]:
        """p and q under independent normal priors (mean, standard deviation)."""
        l1, l2 = 1.0 / (first_sd * first_sd), 1.0 / (second_sd * second_sd)
        a11, a22 = self.a11 + l1, self.a22 + l2
        v1, v2 = self.v1 + l1 * first, self.v2 + l2 * second
        det = max(a11 * a22 - self.a12 * self.a12, l1 * l2)  # which rounding alone can undercut
        return (a22 * v1 - self.a12 * v2) / det, (a11 * v2 - self.a12 * v1) / det

    def dump(self) -> list[float]:
        """State as numbers."""
        return [self.a11, self.a12, self.a22, self.v1, self.v2, float(self.seen)]

    def load(self, numbers: list[float]) -> None:
        """Restore what ``dump`` gave."""
        self.a11, self.a12, self.a22, self.v1, self.v2 = numbers[:5]
        self.seen = int(numbers[5])


class Ridge3:
    """y ≈ p + q·x + r·z."""

    __slots__ = ("seen", "sums")

    def __init__(self) -> None:
        self.sums = [0.0] * 9
        """Weights of 1, x, z, xx, xz, zz, then of y, xy, zy."""
        self.seen = 0

    def add(self, x: float, z: float, y: float, weight: float) -> None:
        """Observe y at (x, z)."""
        keep, wx, wz, wy = FORGET, weight * x, weight * z, weight * y
        a, b, c, d, e, f, u, v, w = self.sums
        self.sums = [
            keep * a + weight,
            keep * b + wx,
            keep * c + wz,
            keep * d + wx * x,
            keep * e + wx * z,
            keep * f + wz * z,
            keep * u + wy,
            keep * v + wy * x,
            keep * w + wy * z,
        ]
        self.seen += 1

    def solve(self, priors: tuple[Prior, Prior, Prior]) -> tuple[float, float, float]:
        """p, q and r under independent normal priors, by Cholesky's decomposition.

        A pivot is never less than its prior in exact arithmetic; the bounds only undo rounding.
        """
        a, b, c, d, e, f, u, v, w = self.sums
        (p, p_sd), (q, q_sd), (r, r_sd) = priors
        lp, lq, lr = 1.0 / (p_sd * p_sd), 1.0 / (q_sd * q_sd), 1.0 / (r_sd * r_sd)
        g11 = (a + lp) ** 0.5
        g21, g31 = b / g11, c / g11
        g22 = max(d + lq - g21 * g21, lq) ** 0.5
        g32 = (e - g31 * g21) / g22
        g33 = max(f + lr - g31 * g31 - g32 * g32, lr) ** 0.5
        y1 = (u + lp * p) / g11
        y2 = (v + lq * q - g21 * y1) / g22
        y3 = (w + lr * r - g31 * y1 - g32 * y2) / g33
        z3 = y3 / g33
        z2 = (y2 - g32 * z3) / g22
        return (y1 - g21 * z2 - g31 * z3) / g11, z2, z3

    def dump(self) -> list[float]:
        """State as numbers."""
        return [*self.sums, float(self.seen)]

    def load(self, numbers: list[float]) -> None:
        """Restore what ``dump`` gave."""
        self.sums, self.seen = list(numbers[:9]), int(numbers[9])
