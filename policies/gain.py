"""The verdict: does speculation pay for this class, and how sure is that?

Intent: gain = seconds per output token on the plain lane ÷ on the speculative lane, same class, brought to the same load.
    unknown ──▶ pays ◀──▶ does not pay ──(time, or a change)──▶ probing ──▶ pays | does not pay | unknown
``pays`` ends only when the upper bound of the gain falls below 1; it returns only when the lower bound exceeds
1 + margin; each verdict lives at least ``dwell_seconds``; none is for ever.
Reads: ``Lesson`` with the learnt step-time model (to bring both lanes to one load). Settings: ``verdict``.
When it is wrong: fewer than ``min_requests`` per lane (it says unknown); a class that mixes contents; backends of one
lane on unlike hardware, which it averages.

Logarithms of the seconds per token are compared, so the gain is a ratio of geometric means and no runaway answer
dominates; the interval is Welch's over requests (decayed), with a floor on the variance. A repeated prompt has a class of
its own: n-gram drafters love repeats (88 → 419 tokens/s for ten times the same prompt, 88 → 88 for eight different ones).
"""

from collections import OrderedDict
from math import exp, log
from typing import Final, NamedTuple

from policies.change import PageHinkley
from policies.decision import PLAIN, SPECULATIVE
from policies.settings import VerdictSettings

UNKNOWN: Final = "unknown"
PAYS: Final = "pays"
DOES_NOT_PAY: Final = "does not pay"
PROBING: Final = "probing"
MAX_CLASSES: Final = 2_000
LEAST_SPREAD: Final = 0.05
"""Floor on the standard deviation of a log token time: three equal samples are not certainty."""
AFTER_CHANGE: Final = 8.0
"""Effective requests kept when a change is detected."""
STRADDLE_PACE: Final = 4
"""An undecided class is probed every so many ``probe_requests`` (25 → about 1 % of its requests)."""


class Gain(NamedTuple):
    """Plain ÷ speculative seconds per token, with its interval over requests. None: not measured on both lanes."""

    ratio: float | None
    lower: float | None
    upper: float | None
    speculative_requests: float
    """Effective (decayed) requests."""
    plain_requests: float


class Sample:
    """Decayed mean and variance of log seconds per token of one lane."""

    __slots__ = ("change", "last_at", "mean", "spread", "weight")

    def __init__(self) -> None:
        self.weight = self.mean = self.spread = 0.0
        self.last_at = float("-inf")
        self.change = PageHinkley()

    def add(self, value: float, at: float, keep: float) -> bool:
        """Fold a value in; True when the level changed."""
        self.last_at = at
        changed = self.change.feed(value)
        if changed:
            self.shrink(AFTER_CHANGE)
        self.weight = keep * self.weight + 1.0
        off = value - self.mean
        self.mean += off / self.weight
        self.spread = keep * self.spread + off * (value - self.mean)
        return changed

    def shrink(self, weight: float) -> None:
        """Keep at most this much evidence."""
        if self.weight > weight:
            self.spread *= weight / self.weight
            self.weight = weight

    def variance_of_mean(self) -> float:
        """Squared standard error; wide for few samples."""
        freedom = max(1.0, self.weight - 1.0)
        return max(LEAST_SPREAD**2, self.spread / freedom) / self.weight * (1.0 + 2.0 / freedom)


class ClassGain:
    """Evidence and verdict of one class."""

    __slots__ = ("changes", "probed", "samples", "since", "since_probe", "state")

    def __init__(self, at: float) -> None:
        self.state = UNKNOWN
        self.since = at
        self.samples = {SPECULATIVE: Sample(), PLAIN: Sample()}
        self.since_probe = 0
        """Requests of the class since the last probe."""
        self.probed = 0
        """Speculative results since probing began."""
        self.changes = 0

    def gain(self, z: float) -> Gain:
        """The gain with its interval."""
        fast, plain = self.samples[SPECULATIVE], self.samples[PLAIN]
        if fast.weight <= 0.0 or plain.weight <= 0.0:
            return Gain(None, None, None, fast.weight, plain.weight)
        middle = plain.mean - fast.mean
        reach = z * (fast.variance_of_mean() + plain.variance_of_mean()) ** 0.5
        return Gain(exp(middle), exp(middle - reach), exp(middle + reach), fast.weight, plain.weight)

    def settle(self, now: float, rules: VerdictSettings) -> None:
        """Move between the states as the evidence says."""
        gain = self.gain(rules.confidence_z)
        verdict = self._says(gain, rules)
        if self.state == PROBING:
            self._end_probing(verdict, now, rules)
        elif verdict != UNKNOWN and verdict != self.state and (self.state == UNKNOWN or self._dwelt(now, rules)):
            self._become(verdict, now)

    def _says(self, gain: Gain, rules: VerdictSettings) -> str:
        enough = min(gain.speculative_requests, gain.plain_requests)
        if gain.lower is None or gain.upper is None or enough < min(rules.min_requests, AFTER_CHANGE):
            return UNKNOWN
        if self.state == UNKNOWN and enough < rules.min_requests * 0.9:
            return UNKNOWN
        if gain.lower > 1.0 + rules.margin:
            return PAYS
        return DOES_NOT_PAY if gain.upper < 1.0 else UNKNOWN

    def _end_probing(self, verdict: str, now: float, rules: VerdictSettings) -> None:
        if self.probed < rules.probe_batch:
            return
        if verdict != UNKNOWN:
            self._become(verdict, now)
        elif self.probed >= 4 * rules.probe_batch:
            self._become(UNKNOWN, now)

    def _dwelt(self, now: float, rules: VerdictSettings) -> bool:
        return now - self.since >= rules.dwell_seconds

    def _become(self, state: str, now: float) -> None:
        self.state, self.since = state, now

    def doubt(self, now: float) -> None:
        """The verdict "does not pay" is to be looked at again."""
        if self.state == DOES_NOT_PAY:
            self._become(PROBING, now)
            self.probed = 0
            self.samples[SPECULATIVE].shrink(AFTER_CHANGE)

    def due(self, now: float, rules: VerdictSettings) -> str | None:
        """The lane that should get one request of this class now, if any."""
        if self.state == UNKNOWN and self.since_probe > 1:
            unseen = self._unseen(rules)
            if unseen is not None:
                return unseen
        if self.state == PROBING:
            return SPECULATIVE if 5 * self.since_probe >= rules.probe_requests else None
        if self.since_probe < rules.probe_requests:
            return None
        for lane, sample in self.samples.items():
            if now - sample.last_at >= rules.probe_seconds and (sample.weight or self._patient(rules)):
                return lane
            if self.state == UNKNOWN and sample.weight < rules.min_requests and self._patient(rules):
                return lane
        return None

    def _unseen(self, rules: VerdictSettings) -> str | None:
        """The lane that lacks first looks while the other one has them."""
        fast, plain = self.samples[SPECULATIVE].weight, self.samples[PLAIN].weight
        enough = 0.9 * rules.first_looks  # weights decay a little
        if min(fast, plain) >= enough or max(fast, plain) < enough:
            return None
        return SPECULATIVE if fast < plain else PLAIN

    def _patient(self, rules: VerdictSettings) -> bool:
        return self.since_probe >= STRADDLE_PACE * rules.probe_requests


class Verdicts:
    """All classes, bounded; the least recently taught leave first."""

    __slots__ = ("classes", "crowd", "keep", "rules")

    def __init__(self, rules: VerdictSettings) -> None:
        self.rules = rules
        self.classes: OrderedDict[str, ClassGain] = OrderedDict()
        self.keep = 1.0 - 1.0 / rules.memory_requests
        self.crowd = 1.0
        """Requests in flight both lanes are compared at: a slow mean over all lessons."""

    def arrive(self, name: str, now: float) -> tuple[str, str | None]:
        """A request of the class arrived: the state, and the lane it should probe."""
        known = self.classes.get(name)
        if known is None:
            return UNKNOWN, None
        known.since_probe += 1
        if known.state == DOES_NOT_PAY and now - known.since >= self.rules.probe_seconds:
            known.doubt(now)
        return known.state, known.due(now, self.rules)

    def probing(self, name: str) -> None:
        """A probe of the class was dispatched."""
        known = self.classes.get(name)
        if known is not None:
            known.since_probe = 0

    def learn(self, name: str, lane: str, seconds_per_token: float, at: float) -> bool:
        """Fold in a token time (already at the common load); True when a change of level was detected."""
        known = self.classes.get(name)
        if known is None:
            known = self.classes[name] = ClassGain(at)
            if len(self.classes) > MAX_CLASSES:
                self.classes.popitem(last=False)
        self.classes.move_to_end(name)
        changed = known.samples[lane].add(log(seconds_per_token), at, self.keep)
        if lane == SPECULATIVE:
            known.probed += 1
        if changed:
            known.changes += 1
            known.doubt(at)
        known.settle(at, self.rules)
        return changed
