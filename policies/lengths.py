"""How long an answer will be, without a model.

Intent: requests of one application are alike, so its history is the predictor: per key a decayed log-histogram (1/3
octave), keys from special to general; the most special one known speaks. It names a length a third of the way, in
octaves, from its median to the middle of the two octaves that hold most of its answers (the mode of a window; Chernoff
1964). On public traces (many clients; one application of code, one of chat) that is within a factor of two for 80, 70
and 88 % of answers, the median alone for 80, 69 and 87 %. All of the way is 83, 70 and 88 %, but the window's middle is
low where answers have a long tail and restless where they are few: modelled latency rises. The mean was no better.
Into every histogram the next more general one is mixed with the weight of ``min_samples`` answers, so that a key of one
answer says nearly what its parent says and a key of a hundred speaks for itself (shrinkage; James and Stein 1961).
Reads: ``Arrived``, ``Lesson``. Settings: ``predictor``.
When it is wrong: an application that mixes tasks; the first answers after a change. ``report`` says how often it was
asked, how far it came down to general keys, and how wrong it was: a predictor nobody checks is a guess.

Cancelled answers and those cut off by their cap are censored: they had *at least* that many tokens. Their weight is
spread over the longer answers of the same key (Efron 1967, "redistribution to the right").
Drift: two-sided Page–Hinkley on log2(tokens) in the histories of ``WATCHED`` levels; when it fires, that history keeps a
weight of 2. The others forget by decay alone, and weigh little wherever a more special one knows something.
"""

from collections import OrderedDict
from math import log2
from typing import Final, NamedTuple

from policies.change import PageHinkley
from policies.events import Arrived
from policies.lesson import Lesson
from policies.make import make
from policies.settings import PredictorSettings
from policies.workload import LEVELS, SPECIAL, length_keys, size_bin, special_key

BINS: Final = 48
WINDOW: Final = 6
"""Bins in two octaves: from half to double."""
LEAN: Final = 1.0 / 3.0
"""Of the way, in octaves, from the median to the middle of the commonest lengths."""
_FORGET_REPORT: Final = 0.995
_RENORM: Final = 1e12
WATCHED: Final = frozenset({0, 2, 4})
"""Levels of an application that look for a change: its requests of one size, of one task, and all of them."""
_GENERAL_FIRST: Final = tuple(reversed(range(len(LEVELS))))


class Prediction(NamedTuple):
    """Output tokens and where the figure comes from."""

    tokens: float
    level: int
    """Index into ``workload.LEVELS``; -1: default or the client's own word."""
    source: str


class Report(NamedTuple):
    """How good the predictions were, decayed over about 200 requests."""

    requests: int
    coverage: float | None
    """Share answered from the application's own history."""
    within_2x: float | None
    """Share within a factor of two of the real output."""
    median_within_2x: float | None
    """What a global median would have reached: the predictor must not be worse."""
    error_log2: float | None
    """Mean |log2(real ÷ predicted)|."""


class Saying(NamedTuple):
    """What a history says of the next answer, its parent mixed in."""

    tokens: float
    """Near the median, on the side where most answers crowd."""
    ends_at_cap: bool
    """More than half of the answers were cut off by their cap."""


def bin_of(tokens: float) -> int:
    """Third-octave bin."""
    return min(BINS - 1, int(3.0 * log2(tokens))) if tokens > 1.0 else 0


class Histogram:
    """Decayed weights per bin. Instead of decaying all bins, each new answer weighs more (and all are rescaled rarely)."""

    __slots__ = ("answers", "bins", "capped", "change", "parent", "said", "total", "unit")

    def __init__(self, watched: bool) -> None:
        self.bins: dict[int, float] = {}
        self.unit = 1.0
        self.total = 0.0
        self.capped = 0.0
        self.answers = 0
        """Answers counted; with the parent's, the key under which ``said`` holds."""
        self.parent: Histogram | None = None
        """The history of the next more general key."""
        self.change = PageHinkley() if watched else None
        self.said: tuple[int, int, Saying] | None = None

    def add(self, place: int, censored: bool, capped: bool, decay: float) -> None:
        """Count one answer by its bin."""
        self.answers += 1
        unit = self.unit = self.unit / decay
        if unit > _RENORM:
            self._scale(1.0 / unit)
            unit = self.unit = 1.0
        bins = self.bins
        if censored:
            self._spread(place)
        else:
            bins[place] = bins.get(place, 0.0) + unit
        self.total += unit
        if capped:
            self.capped += unit

    def watch(self, log2_tokens: float) -> None:
        """Look for a change of level, and forget most when there was one."""
        if self.change is not None and self.change.feed(log2_tokens) and self.total > 0.0:
            self._scale(min(1.0, 2.0 * self.unit / self.total))

    @property
    def samples(self) -> float:
        """Effective answers: total ÷ weight of the newest."""
        return self.total / self.unit

    def says(self, samples: float) -> "Saying":
        """What the key says, with its parent weighing as much as ``samples`` answers. Remembered until either learns."""
        parent = self.parent
        others = parent.answers if parent is not None else 0
        said = self.said
        if said is not None and said[0] == self.answers and said[1] == others:
            return said[2]
        bins, capped, total = self.bins, self.capped, self.total
        if parent is not None and parent.total > 0.0:
            weight = samples * self.unit
            share = weight / parent.total
            bins = bins.copy()
            for place, mass in parent.bins.items():
                bins[place] = bins.get(place, 0.0) + mass * share
            capped, total = capped + parent.capped * share, total + weight
        median = _median(bins, total)
        saying = Saying(median * (_likely(bins) / median) ** LEAN, capped > 0.5 * total)
        self.said = self.answers, others, saying
        return saying

    def _spread(self, place: int) -> None:
        longer = [bin_ for bin_ in self.bins if bin_ > place]
        mass = sum(self.bins[bin_] for bin_ in longer)
        if mass <= 0.0:
            above = min(BINS - 1, place + 1)
            self.bins[above] = self.bins.get(above, 0.0) + self.unit
            return
        for bin_ in longer:
            self.bins[bin_] += self.unit * self.bins[bin_] / mass

    def _scale(self, factor: float) -> None:
        self.bins = {bin_: weight * factor for bin_, weight in self.bins.items() if weight * factor > 1e-6}
        self.total = sum(self.bins.values())
        self.capped *= factor


def _likely(bins: dict[int, float]) -> float:
    """In tokens: the middle of the heaviest window, from its first bin in use to its last; of equals the shortest length."""
    places = sorted(bins)
    first = last = end = 0
    best = mass = 0.0
    for place in places:
        while end < len(places) and places[end] < place + WINDOW:
            mass += bins[places[end]]
            end += 1
        if mass > best * 1.000001:  # sums of decayed weights: equal windows differ in the last digits
            best, first, last = mass, place, places[end - 1]
        mass -= bins[place]
    return max(1.0, float(2.0 ** ((first + last + 1) / 6.0)))


def _median(bins: dict[int, float], total: float) -> float:
    """In tokens, interpolated within its bin."""
    goal, mass = 0.5 * total, 0.0
    for place in sorted(bins):
        weight = bins[place]
        if mass + weight >= goal:
            return float(2.0 ** ((place + (goal - mass) / weight) / 3.0))
        mass += weight
    return 1.0


class Lengths:
    """Histories of all keys, and the report on their predictions."""

    __slots__ = (
        "_capped",
        "_global",
        "_hits",
        "_level",
        "_median",
        "_wrong",
        "histograms",
        "requests",
        "settings",
        "weight",
    )

    def __init__(self, settings: PredictorSettings) -> None:
        self.settings = settings
        self.histograms: OrderedDict[tuple[object, ...], Histogram] = OrderedDict()
        self.requests = 0
        self._median = settings.default_output_tokens
        self.weight = self._level = self._hits = self._global = self._wrong = 0.0

    def predict(self, arrived: Arrived, input_tokens: float) -> Prediction:
        """Output tokens to expect, all ``n`` answers together."""
        if arrived.expected_output_tokens:
            return make(Prediction, _cap(float(arrived.expected_output_tokens), arrived.cap), -1, "client")
        first = special_key(arrived, input_tokens)
        histograms = self.histograms
        history = histograms.get(first)
        if history is not None:
            return self._say(history, 0, arrived)
        for level, key in enumerate(length_keys(*first)):  # type: ignore[arg-type]  # the key holds its arguments
            history = histograms.get(key)
            if history is not None:
                return self._say(history, level, arrived)
        return make(Prediction, _cap(self.settings.default_output_tokens, arrived.cap) * arrived.n, -1, "default")

    def _say(self, history: Histogram, level: int, arrived: Arrived) -> Prediction:
        cap = arrived.cap
        tokens, ends_at_cap = history.says(self.settings.min_samples)
        if cap is not None and ends_at_cap:
            return make(Prediction, float(cap) * arrived.n, level, LEVELS[level] + " (ends at its cap)")
        return make(Prediction, _cap(tokens, cap) * arrived.n, level, LEVELS[level])

    def learn(self, lesson: Lesson) -> None:
        """Fold in a finished or cancelled answer."""
        if not lesson.output_tokens or lesson.output_tokens < 1:
            return
        tokens = lesson.output_tokens / max(1, lesson.parallel)
        if not lesson.censored:
            self._judge(lesson, tokens)
        features = tuple(lesson.features.split(",")) if lesson.features else ()
        size = size_bin(lesson.expected_input_tokens)
        keys = length_keys(lesson.app, lesson.model, lesson.system, features, lesson.sampled, size)
        self._add(keys, tokens, lesson.censored, lesson.hit_cap)
        while len(self.histograms) > self.settings.max_keys:
            self.histograms.popitem(last=False)

    def _add(self, keys: tuple[tuple[object, ...], ...], tokens: float, censored: bool, capped: bool) -> None:
        """Into the history of every level, the most general first."""
        histograms, decay = self.histograms, self.settings.decay
        place, size = bin_of(tokens), log2(tokens) if tokens > 1.0 else 0.0
        parent = None
        for level in _GENERAL_FIRST:
            key = keys[level]
            history = histograms.get(key)
            if history is None:
                history = histograms[key] = Histogram(level in WATCHED)
            else:
                histograms.move_to_end(key)
            if not censored and history.change is not None:
                history.watch(size)
            history.add(place, censored, capped, decay)
            history.parent = parent
            parent = history
        if parent is not None:
            parent.says(self.settings.min_samples)  # remembered: the next request need not wait for it

    def relate(self) -> None:
        """Give each history its more general one back (after a restore)."""
        for key in [key for key in self.histograms if len(key) == 6 and key[2] is not None]:
            parent = None
            for general in reversed(length_keys(*key)):  # type: ignore[arg-type]  # as in ``predict``
                history = self.histograms.get(general)
                if history is not None:
                    history.parent, parent = parent, history

    def _judge(self, lesson: Lesson, tokens: float) -> None:
        keep = _FORGET_REPORT
        self.requests += 1
        self.weight = keep * self.weight + 1.0
        predicted = lesson.predicted_tokens / max(1, lesson.parallel)
        error = abs(log2(tokens / max(predicted, 1.0)))
        self._level = keep * self._level + (0 <= lesson.predicted_level < SPECIAL)
        self._hits = keep * self._hits + (error <= 1.0)
        self._wrong = keep * self._wrong + error
        median = _cap(self._overall_median(), lesson.cap)
        self._global = keep * self._global + (abs(log2(tokens / max(median, 1.0))) <= 1.0)

    def _overall_median(self) -> float:
        """Of all answers, as of the last sixteenth one: it serves the report alone."""
        if self.requests % 16 == 1:
            overall = self.histograms.get(())
            self._median = (
                self.settings.default_output_tokens if overall is None else _median(overall.bins, overall.total)
            )
        return self._median

    def report(self) -> Report:
        """Coverage and error so far."""
        if self.requests == 0:
            return Report(0, None, None, None, None)
        weight = self.weight
        return Report(
            self.requests, self._level / weight, self._hits / weight, self._global / weight, self._wrong / weight
        )


def _cap(tokens: float, cap: int | None) -> float:
    return tokens if cap is None or tokens < cap else float(max(1, cap))
