"""How fast one backend is, learnt from what passes by.

Intent: an engine step takes ``F + b·n`` seconds with n requests in flight, and a prompt token prefilled beside it another
``e``; the first token takes ``a + c·X`` seconds with X prompt tokens to prefill (own and waiting). Both are ridge
regressions with forgetting (recursive least squares; Ljung, *System Identification*, ch. 11), so that priors speak first
and evidence later, made robust by Huber weights (Huber 1964).
Reads: ``Lesson``. Settings: none; the constants were fixed in simulation.
When it is wrong: step time is not linear in n far beyond what was seen; KV-cache length is not modelled (it brought
nothing in simulation); a backend shared with traffic that does not pass here looks slow for no visible reason.

Why three numbers for the step. The decode time D of a request with S steps holds the prefill of others, P tokens. Taking
``y = (D − c·P)/S`` for the step time puts the error of c, which also holds queueing, into y; near saturation D is mostly
c·P and y mostly that error. Long prompts then make the backend that serves them look slow per step, decode-heavy requests
leave it, more long prompts fill the room: a reversed assignment that confirms itself. So e is estimated together with F
and b, from ``D/S = F + b·n̄ + e·P/S``, and an observation that is mostly foreign prefill weighs little in all of this;
the reference step it leaves alone, or a backlog of prompts would raise the prior of F. n̄ counts requests that decode:
those that wait for their first token are in nobody's step (``Backend.decoding``).
"""

from math import exp, log
from typing import Final

from policies.lesson import Lesson
from policies.ridge import Ridge, Ridge3

DEAD_BAND: Final = 0.15
"""Log-scale deviations within this band are noise."""

SHORTEST: Final = 1e-5
"""No engine step is shorter, in seconds; keeps the sums well conditioned whatever a clock says."""


def huber(residual: float, limit: float) -> float:
    """Weight of an observation: 1 within the limit, falling beyond it."""
    size = abs(residual)
    return 1.0 if size <= limit else limit / size


class Speed:
    """The learner of one backend. Read ``prefill``, ``base`` and ``slope``; seconds, load factor included."""

    __slots__ = (
        "base",
        "beside",
        "completions",
        "decode",
        "drift",
        "first",
        "fixed",
        "per_request",
        "prefill",
        "purity",
        "residual",
        "slope",
        "start",
        "step",
    )

    def __init__(self) -> None:
        self.step = 0.02
        """Reference step time y_ref; 20 ms until the first observation."""
        self.completions = 0
        self.decode = Ridge3()
        self.first = Ridge()
        self.residual = 0.3
        """Decayed mean of |D/S − expected| ÷ y_ref."""
        self.purity = 1.0
        """Of the last step time learnt: 1 without foreign prefill in it, towards 0 the more it was that."""
        self.drift = 0.0
        """G: fast log-scale of D/S against the expected."""
        self._solve()

    def _solve(self) -> None:
        ref = self.step
        # Wide: on a GPU a prompt token costs a few hundredths of a decode step, on a CPU a fifth of one (llama.cpp, measured);
        # a tight prior hid 4 of 5 ms there for 50 requests.
        self.start, prefill = self.first.solve(1.5 * ref, ref, ref / 300, ref / 30)
        self.prefill = max(prefill, ref / 3000)
        priors = ((0.8 * ref, 0.5 * ref), (ref / 200, ref / 100), (self.prefill, 0.3 * self.prefill))
        fixed, slope, beside = self.decode.solve(priors)
        self.fixed, self.per_request = max(fixed, 0.05 * ref), max(slope, 0.0)
        self.beside = min(max(beside, 0.1 * self.prefill), 2.0 * self.prefill)
        scale = self.factor()
        self.base, self.slope = scale * self.fixed, scale * self.per_request

    def factor(self) -> float:
        """How much slower than learnt steps are just now; 1 within the dead band."""
        beyond = abs(self.drift) - DEAD_BAND
        return 1.0 if beyond <= 0.0 else exp(beyond if self.drift > 0 else -beyond)

    def step_seconds(self, crowd: float) -> float:
        """Expected engine step with ``crowd`` requests in flight and no prefill beside them."""
        return self.base + self.slope * crowd

    def usual_step_seconds(self, crowd: float) -> float:
        """As ``step_seconds``, without what is just now slower or faster than learnt."""
        return self.fixed + self.per_request * crowd

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
        pull = huber(seconds - self.start - expected, 2.0 * sd) if self.first.seen >= 10 else 1.0
        self.first.add(load, seconds, pull / (sd * sd))

    def _learn_step(self, lesson: Lesson, seconds: float, steps: float) -> float:
        took, beside = max(seconds / steps, SHORTEST), lesson.prefilled / steps
        others = self.beside * beside
        trust = 1.0 if lesson.streamed else 0.5
        noise = (0.2 * self.step) ** 2 + (0.3 * others) ** 2
        pure = self.purity = (0.2 * self.step) ** 2 / noise
        drowned = others > 0.5 * took
        own = max(took - others, (0.1 if drowned else 0.3) * took)
        rate = max(0.0 if drowned else 0.05 * pure, 1.0 / (self.completions + 1))
        self.step = max(SHORTEST, self.step + rate * (min(own, 3.0 * self.step) - self.step))
        expected = max(self.fixed + self.per_request * lesson.crowd + others, 1e-9)
        miss = took - expected
        weight = trust * min(1.0, steps / 32.0) / noise
        spread = noise**0.5
        if self.decode.seen >= 10:
            weight *= huber(miss / spread, 2.5 * max(1.0, self.residual))
        self.residual += 0.05 * (min(abs(miss) / spread, 10.0) - self.residual)
        self.decode.add(lesson.crowd, beside, took, weight)
        pull = max(-1.0, min(1.0, log(took / expected) - self.drift))
        self.drift += 0.2 * trust * min(1.0, steps / 16.0) * pull
        return max(took - others, 0.3 * took) / max(expected - others, 1e-9)

    def dump(self) -> list[float]:
        """State as numbers."""
        return [self.step, float(self.completions), self.residual, self.drift, *self.decode.dump(), *self.first.dump()]

    def load(self, numbers: list[float]) -> None:
        """Restore what ``dump`` gave."""
        self.step, completions, self.residual, self.drift = numbers[:4]
        self.completions = int(completions)
        self.decode.load(numbers[4:14])
        self.first.load(numbers[14:20])
        self._solve()
