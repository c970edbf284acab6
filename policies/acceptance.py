"""How many drafted tokens a backend accepts: per class, per application, from answers and from counters.

Intent: tokens per step (``AL``, bonus token included) is what divides the step time, so it enters every cost; the
acceptance rate is what people know and what alarms watch. Acceptance alone decides nothing: 85 % at depth 1 was measured
at −0.9 % speed. Means over requests are harmonic, because latency is linear in 1/AL.
Reads: ``Lesson``, ``Scraped``. Settings: none here (alarm thresholds: ``alarms``).
When it is wrong: an engine that reports neither per request nor per stream nor in counters has no AL; then the class's
step-time factor stands in for it (``Yields.learn_factor``), which needs load to be modelled well.
"""

from collections import OrderedDict
from math import exp, log
from typing import Final, NamedTuple

from policies.events import Scraped
from policies.lesson import Lesson, tokens_per_step

FORGET: Final = 0.98
MAX_CLASSES: Final = 2_000


class Acceptance(NamedTuple):
    """A figure with how it was got. Rates are None where nothing was drafted: 0/0 is unknown, not zero."""

    rate: float | None
    """Accepted ÷ drafted tokens."""
    tokens_per_step: float | None
    """Harmonic mean over requests, decayed by 0.98 per request."""
    requests: int
    """Finished requests behind it; 0 for counters."""
    draft_tokens: float
    """Drafted tokens behind the rate."""
    first_position: float | None = None
    """Share of drafting steps whose first token was accepted."""


class Tally:
    """Decayed sums over the requests of one backend, class or application."""

    __slots__ = (
        "accepted",
        "draft_tokens",
        "effort",
        "first",
        "first_drafts",
        "inverse",
        "requests",
        "steps",
        "weight",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.inverse = self.weight = self.steps = 0.0
        self.effort = 0.0
        """As ``inverse``, each request's steps measured in the backend's ordinary ones."""
        self.draft_tokens = self.accepted = self.first = self.first_drafts = 0.0

    def learn(self, lesson: Lesson, step_ratio: float = 1.0) -> None:
        """Fold in one finished request; one without any acceptance signal is not counted.

        ``step_ratio``: its step time ÷ the backend's ordinary one.
        """
        per_step = tokens_per_step(lesson)
        if per_step is None and not lesson.draft_tokens:
            return
        self.requests += 1
        if per_step is not None and lesson.steps is not None:
            weight = min(1.0, per_step * lesson.steps / 32.0)
            self.inverse = FORGET * self.inverse + weight / per_step
            self.effort = FORGET * self.effort + weight * step_ratio / per_step
            self.weight = FORGET * self.weight + weight
            self.steps = FORGET * self.steps + lesson.steps
        self.draft_tokens = FORGET * self.draft_tokens + (lesson.draft_tokens or 0)
        self.accepted = FORGET * self.accepted + (lesson.accepted_tokens or 0)
        if lesson.first_accepted is not None and lesson.drafts:
            self.first = FORGET * self.first + lesson.first_accepted
            self.first_drafts = FORGET * self.first_drafts + lesson.drafts

    def acceptance(self) -> Acceptance:
        """What the sums say now."""
        return Acceptance(
            rate=self.accepted / self.draft_tokens if self.draft_tokens > 0 else None,
            tokens_per_step=self.weight / self.inverse if self.inverse > 0 else None,
            requests=self.requests,
            draft_tokens=self.draft_tokens,
            first_position=self.first / self.first_drafts if self.first_drafts > 0 else None,
        )


class Yields:
    """Tokens per step of one backend by class, ready to divide a step time by.

    Steps are counted in the backend's ordinary ones. An n-gram drafter's step costs what it drafted: on a CPU, verifying
    16 tokens took 8 times a plain step (measured, llama.cpp), so a class that always drafts 16 gains 1.5 from 8 tokens a
    step, while a class that never drafts has cheap steps; one step time for both would refuse speculation to the first.
    ``per_step`` maps a class to its figure; classes not in it have ``base``. A plain backend stays at 1.
    """

    __slots__ = ("base", "by_class", "drafted", "factors", "overall", "per_step", "proven", "speculative")

    def __init__(self, speculative: bool, depth: int | None) -> None:
        self.speculative = speculative
        self.overall = Tally()
        self.by_class: OrderedDict[str, Tally] = OrderedDict()
        self.factors: dict[str, float] = {}
        self.per_step: dict[str, float] = {}
        self.proven: dict[str, float] = {}
        """Class → what it is measured to yield at least (``prove``)."""
        self.base = 2.0 / 1.2 if speculative else 1.0
        self.drafted = float(depth if depth is not None else 3) if speculative else 0.0
        """Draft tokens per engine step; the depth until answers tell."""

    def of(self, gain_class: str) -> float:
        """Tokens per step to expect of a class."""
        return self.per_step.get(gain_class, self.base)

    def steps(self, lesson: Lesson) -> float:
        """Engine steps of a lesson's decode: counted where possible, else by what is known of the backend."""
        if lesson.steps is not None:
            return lesson.steps
        tokens = max(0, (lesson.output_tokens or 0) - 1)
        return tokens / self.base if self.speculative and self.overall.weight > 0 else float(tokens)

    def learn(self, lesson: Lesson, step_ratio: float | None = None) -> None:
        """Fold in the acceptance of one finished request, and how dear its steps were (``Speed.learn``)."""
        if not self.speculative:
            return
        dear = 1.0 if step_ratio is None else dearness(step_ratio)
        if not lesson.repeated:
            self.overall.learn(lesson, dear)
        tally = self.by_class.setdefault(lesson.gain_class, Tally())
        self.by_class.move_to_end(lesson.gain_class)
        tally.learn(lesson, dear)
        if len(self.by_class) > MAX_CLASSES:
            gone, _ = self.by_class.popitem(last=False)
            self.per_step.pop(gone, None)
            self.factors.pop(gone, None)
            self.proven.pop(gone, None)
        self._settle(lesson.gain_class)

    def learn_factor(self, gain_class: str, ratio: float) -> None:
        """No acceptance signal at all: the class's step time ÷ the backend's stands in for 1/AL (decay 0.95)."""
        known = self.factors.get(gain_class, 1.0)
        self.factors[gain_class] = known + 0.05 * (min(max(ratio, 0.1), 10.0) - known)
        self._settle(gain_class)

    def learn_counters(self, per_step: float, steps: float) -> None:
        """Counters of the engine, used only while no answer carries figures of its own."""
        if not self.speculative or self.overall.requests:
            return
        weight = min(1.0, steps / 16.0)
        self.overall.inverse = FORGET * self.overall.inverse + weight / max(1.0, per_step)
        self.overall.effort = FORGET * self.overall.effort + weight / max(1.0, per_step)
        self.overall.weight = FORGET * self.overall.weight + weight
        self._settle(None)

    def prove(self, gain_class: str, at_least: float) -> None:
        """The gain measured between the lanes implies this many tokens per ordinary step at least; 0: nothing is proven."""
        if at_least > 0.0:
            self.proven[gain_class] = at_least
        elif self.proven.pop(gain_class, None) is None:
            return
        self._settle(gain_class)

    def forget(self, gain_class: str) -> None:
        """A change was detected: keep the old evidence of the class as a weak prior."""
        tally = self.by_class.get(gain_class)
        if tally is not None and tally.weight > 2.0:
            keep = 2.0 / tally.weight
            tally.weight *= keep
            tally.inverse *= keep
            tally.effort *= keep
            self._settle(gain_class)

    def _settle(self, gain_class: str | None) -> None:
        all_ = self.overall
        if self.speculative and not (self.factors and not all_.weight):
            self.base = (all_.weight + 2.0) / (all_.effort + 2.0 * 0.6)
        if all_.steps > 64 and all_.draft_tokens > 0:
            self.drafted = all_.draft_tokens / all_.steps
        if gain_class is None:
            return
        tally = self.by_class.get(gain_class)
        if tally is not None and tally.weight > 0:
            self.per_step[gain_class] = (tally.weight + 4.0) / (tally.effort + 4.0 / self.base)
        elif gain_class in self.factors:
            self.base = 1.0
            self.per_step[gain_class] = 1.0 / self.factors[gain_class]
        else:
            self.per_step.pop(gain_class, None)
        if gain_class in self.proven:
            self.per_step[gain_class] = max(self.per_step.get(gain_class, 0.0), self.proven[gain_class])

    def settle_all(self) -> None:
        """Recompute the figures of every class (after a restore)."""
        for gain_class in self.by_class:
            self._settle(gain_class)


def dearness(step_ratio: float) -> float:
    """What a step of a class costs against the backend's ordinary one. Differences within e^±0.25 are noise: where every
    step drafts the same depth there are none, and counting noise as such cost 2 % in simulation."""
    size = log(min(max(step_ratio, 0.1), 10.0))
    return exp(size - 0.25) if size > 0.25 else exp(size + 0.25) if size < -0.25 else 1.0


class Counters:
    """Deltas of a backend's scraped totals. A total that falls means a restart: that delta is what it counts now."""

    __slots__ = ("accepted", "draft_tokens", "drafts", "first", "generated", "last", "quiet_tokens", "scraped_at")

    def __init__(self) -> None:
        self.last: Scraped | None = None
        self.scraped_at: float | None = None
        self.drafts = self.draft_tokens = self.accepted = self.first = self.generated = 0.0
        """Decayed sums of deltas (0.9 per scrape that brought drafts)."""
        self.quiet_tokens = 0.0
        """Tokens generated since the drafts counter last moved."""

    def learn(self, scraped: Scraped) -> tuple[float, float] | None:
        """Fold a scrape in; return (tokens per drafting step, drafting steps) of the interval when something moved."""
        before, self.last, self.scraped_at = self.last, scraped, scraped.at
        if before is None:
            return None
        drafts = _delta(before.drafts, scraped.drafts)
        tokens = _delta(before.generated_tokens, scraped.generated_tokens)
        if drafts <= 0.0:
            self.quiet_tokens += tokens
            return self._gauge(scraped, tokens)
        self.quiet_tokens = 0.0
        accepted = _delta(before.accepted_tokens, scraped.accepted_tokens)
        self._sum(drafts, accepted, before, scraped)
        return 1.0 + accepted / drafts, drafts

    def _sum(self, drafts: float, accepted: float, before: Scraped, scraped: Scraped) -> None:
        self.drafts = 0.9 * self.drafts + drafts
        self.accepted = 0.9 * self.accepted + accepted
        self.draft_tokens = 0.9 * self.draft_tokens + _delta(before.draft_tokens, scraped.draft_tokens)
        if before.accepted_per_position and scraped.accepted_per_position:
            self.first = 0.9 * self.first + _delta(before.accepted_per_position[0], scraped.accepted_per_position[0])

    def _gauge(self, scraped: Scraped, tokens: float) -> tuple[float, float] | None:
        length = scraped.acceptance_length
        if scraped.drafts is not None or length is None or length < 1.0 or tokens <= 0.0:
            return None
        return length, tokens / length

    def acceptance(self) -> Acceptance:
        """What the counters said lately."""
        return Acceptance(
            rate=self.accepted / self.draft_tokens if self.draft_tokens > 0 else None,
            tokens_per_step=1.0 + self.accepted / self.drafts if self.drafts > 0 else None,
            requests=0,
            draft_tokens=self.draft_tokens,
            first_position=self.first / self.drafts if self.drafts > 0 and self.first > 0 else None,
        )


def _delta(before: float | None, now: float | None) -> float:
    if now is None or before is None:
        return 0.0
    return now - before if now >= before else now
