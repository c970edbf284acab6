"""Who sends what, and what became of it: the figures operators look at first."""

from collections import OrderedDict
from typing import Final

from policies.acceptance import Acceptance, Tally
from policies.decision import SPECULATIVE
from policies.lesson import Lesson, seconds_per_token

MAX_APPLICATIONS: Final = 1_000
FORGET: Final = 0.98


class Application:
    """Decayed figures of one application (about 50 requests of memory)."""

    __slots__ = ("input_tokens", "output_tokens", "requests", "speculative", "tally", "token_seconds", "weight")

    def __init__(self) -> None:
        self.requests = 0
        self.speculative = 0
        """Of those, served by the speculative lane."""
        self.weight = self.input_tokens = self.output_tokens = 0.0
        self.token_seconds: dict[str, float] = {}
        """Lane → decayed mean of seconds per output token."""
        self.tally = Tally()

    def learn(self, lesson: Lesson) -> None:
        """Fold in a finished request."""
        self.weight = FORGET * self.weight + 1.0
        tokens = lesson.prompt_tokens if lesson.prompt_tokens is not None else lesson.expected_input_tokens
        self.input_tokens = FORGET * self.input_tokens + tokens
        self.output_tokens = FORGET * self.output_tokens + (lesson.output_tokens or 0)
        pace = seconds_per_token(lesson)
        if pace is not None:
            known = self.token_seconds.get(lesson.lane, pace)
            self.token_seconds[lesson.lane] = known + 0.05 * (pace - known)
        if lesson.lane == SPECULATIVE:
            self.tally.learn(lesson)

    def acceptance(self) -> Acceptance:
        """On the speculative lane."""
        return self.tally.acceptance()


class Applications:
    """Bounded; those silent for longest leave first."""

    __slots__ = ("by_name",)

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, Application] = OrderedDict()

    def count(self, name: str, lane: str) -> None:
        """One more request of this application finished on this lane."""
        known = self.by_name.get(name)
        if known is None:
            known = self.by_name[name] = Application()
            if len(self.by_name) > MAX_APPLICATIONS:
                self.by_name.popitem(last=False)
        else:
            self.by_name.move_to_end(name)
        known.requests += 1
        known.speculative += lane == SPECULATIVE

    def learn(self, lesson: Lesson) -> None:
        """What a finished request, counted before, teaches."""
        known = self.by_name.get(lesson.app)
        if known is not None:
            known.learn(lesson)

    def top(self, count: int) -> list[tuple[str, Application]]:
        """Those with most requests, by name among equals."""
        return sorted(self.by_name.items(), key=lambda item: (-item[1].requests, item[0]))[:count]
