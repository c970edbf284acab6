"""How fast one backend is, learnt from what passes by.

Intent: two numbers per backend describe an engine step, ``F + b·n`` seconds with n requests in flight; two more describe
the first token, ``a + c·X`` seconds with X prompt tokens to prefill (own and waiting). They are estimated by ridge
regressions with forgetting, so that priors speak first and evidence later (recursive least squares; Ljung, *System
Identification*, ch. 11), and made robust by Huber weights (Huber 1964).
Reads: ``Lesson``. Settings: none; every constant below was fixed in simulation over 16 scenarios × 8 seeds.
When it is wrong: step time is not linear in n far beyond what was seen; KV-cache length is not modelled (it brought
nothing in simulation); a backend shared with traffic that does not pass here looks slow for no visible reason.

The step time of a request is its decode time minus the prefill of others during it, divided by its steps:
``y = (D − c·P)/S``. Near saturation D is mostly c·P and y is mostly the error of c: long prompts then make the backend
that serves them look slow per step, decode-heavy requests leave it, more long prompts fill the room, and a reversed
assignment confirms itself. Two things stop that. The variance of y holds the uncertainty of c·P, so such observations
weigh next to nothing. And the seconds per prefilled token *during decodes* are estimated on their own (``e``), from the
decodes themselves, since c from first-token times also holds queueing.
"""

from math import exp, log

from policies.lesson import Lesson

FORGET = 0.98
"""Per observation; about 50 observations of memory."""
DEAD_BAND = 0.15
"""Log-scale deviations within this band are noise."""


class Ridge:
    """Two-parameter weighted least squares with exponential forgetting and a prior that never fades."""

    __slots__ = ("a11", "a12", "a22", "seen", "v1", "v2")

    def __init__(self) -> None:
        self.a11 = self.a12 = self.a22 = self.v1 = self.v2 = 0.0
        self.seen = 0

    def add(self, x: float, y: float, weight: float) -> None:
        """Observe y at [1, x]."""
        self.a11 = FORGET * self.a11 + weight
        self.a12 = FORGET * self.a12 + weight * x
        self.a22 = FORGET * self.a22 + weight * x * x
        self.v1 = FORGET * self.v1 + weight * y
        self.v2 = FORGET * self.v2 + weight * x * y
        self.seen += 1

    def solve(self, first: float, first_sd: float, second: float, second_sd: float) -> tuple[float, float]:
        """Intercept and slope under independent normal priors (mean, standard deviation)."""
        l1, l2 = 1.0 / (first_sd * first_sd), 1.0 / (second_sd * second_sd)
        a11, a22 = self.a11 + l1, self.a22 + l2
        v1, v2 = self.v1 + l1 * first, self.v2 + l2 * second
        det = a11 * a22 - self.a12 * self.a12
        return (a22 * v1 - self.a12 * v2) / det, (a11 * v2 - self.a12 * v1) / det

    def dump(self) -> list[float]:
        """State as numbers."""
        return [self.a11, self.a12, self.a22, self.v1, self.v2, float(self.seen)]

    def load(self, numbers: list[float]) -> None:
        """Restore what ``dump`` gave."""
        self.a11, self.a12, self.a22, self.v1, self.v2 = numbers[:5]
        self.seen = int(numbers[5])


def _huber(residual: float, limit: float) -> float:
    size = abs(residual)
    return 1.0 if size <= limit else limit / size


class Speed:
    """The learner of one backend. Read ``prefill``, ``base`` and ``slope``; seconds, load factor included."""

    __slots__ = (
        "base",
        "completions",
        "decode",
        "drift",
        "first",
        "fixed",
        "per_request",
        "prefill",
        "residual",
        "slope",
        "start",
        "step",
    )  # fmt: skip

    def __init__(self) -> None:
        self.step = 0.02
        """Reference step time y_ref; 20 ms until the first observation."""
        self.completions = 0
        self.decode = Ridge()
        self.first = Ridge()
        self.residual = 0.3
        """Decayed mean of |y − ŷ| ÷ y_ref."""
        self.drift = 0.0
        """G: fast log-scale of y against F + b·n."""
        self._solve()

    def _solve(self) -> None:
        ref = self.step
        self.start, prefill = self.first.solve(1.5 * ref, ref, ref / 300, ref / 150)
        self.prefill = max(prefill, ref / 3000)
        fixed, slope = self.decode.solve(0.8 * ref, 0.5 * ref, ref / 200, ref / 100)
        self.fixed, self.per_request = max(fixed, 0.05 * ref), max(slope, 0.0)
        scale = self.factor()
        self.base, self.slope = scale * self.fixed, scale * self.per_request

    def factor(self) -> float:
        """How much slower than F + b·n steps are just now; 1 within the dead band."""
        beyond = abs(self.drift) - DEAD_BAND
        return 1.0 if beyond <= 0.0 else exp(beyond if self.drift > 0 else -beyond)

    def step_seconds(self, crowd: float) -> float:
        """Expected engine step with ``crowd`` requests in flight."""
        return self.base + self.slope * crowd

    def learn(self, lesson: Lesson, steps: float) -> float | None:
        """Fold a finished request in; return its step time ÷ the expected one, None when it taught no step time.

        ``steps``: engine steps of its decode, as well as they are known.
        """
        if lesson.ttft_seconds is not None:
            self._learn_first(lesson.prefill_load, lesson.ttft_seconds)
        ratio = None
        if lesson.decode_seconds is not None and lesson.decode_seconds > 0.0 and steps >= 4.0:
            ratio = self._learn_step(lesson, lesson.decode_seconds, steps)
        self.completions += 1
        self._solve()
        return ratio

    def _learn_first(self, load: float, seconds: float) -> None:
        expected = self.prefill * load
        queued = min(seconds, 10.0 * (expected + 2.0 * self.step))
        sd = (self.step**2 + (0.3 * expected) ** 2 + (0.3 * queued) ** 2) ** 0.5
        pull = _huber(seconds - self.start - expected, 2.0 * sd) if self.first.seen >= 10 else 1.0
        self.first.add(load, seconds, pull / (sd * sd))

    def _learn_step(self, lesson: Lesson, seconds: float, steps: float) -> float:
        others = self.prefill * lesson.prefilled
        y = max((seconds - others) / steps, 0.3 * seconds / steps)
        trust = 1.0 if lesson.streamed else 0.5
        self.step += max(0.05, 1.0 / (self.completions + 1)) * (min(y, 3.0 * self.step) - self.step)
        miss = y - self.fixed - self.per_request * lesson.crowd
        weight = trust * min(1.0, steps / 32.0) / ((0.2 * self.step) ** 2 + (0.3 * others / steps) ** 2)
        if self.decode.seen >= 10:
            weight *= _huber(miss / self.step, 2.5 * self.residual)
        self.residual += 0.05 * (min(abs(miss) / self.step, 10.0) - self.residual)
        self.decode.add(lesson.crowd, y, weight)
        ratio = y / max(self.fixed + self.per_request * lesson.crowd, 1e-9)
        pull = max(-1.0, min(1.0, log(ratio) - self.drift))
        self.drift += 0.2 * trust * min(1.0, steps / 16.0) * pull
        return ratio

    def dump(self) -> list[float]:
        """State as numbers."""
        return [self.step, float(self.completions), self.residual, self.drift, *self.decode.dump(), *self.first.dump()]

    def load(self, numbers: list[float]) -> None:
        """Restore what ``dump`` gave."""
        self.step, completions, self.residual, self.drift = numbers[:4]
        self.completions = int(completions)
        self.decode.load(numbers[4:10])
        self.first.load(numbers[10:16])
        self._solve()
