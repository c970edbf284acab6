"""How many prompt tokens a request has, and how many of them are cached.

Intent: the judgement needs tokens, requests carry bytes. ``usage.prompt_tokens`` of every answer corrects a factor per
application and kind of content (bytes/4 is within 5 % on English, 30 % low on code, 2.6 times low on JSON numbers).
Reads: ``Arrived``, ``Lesson``. Settings: ``predictor``.
When it is wrong: the first requests of a new application; media parts, whose cost no byte count tells (a mean per part
is learnt).
"""

from collections import OrderedDict
from typing import Final

from policies.events import Arrived
from policies.lesson import Lesson
from policies.settings import PredictorSettings

FORGET: Final = 0.95
GENERAL: Final = ("", "", "")


class Factor:
    """Decayed sums that make two ratios: tokens per byte, and the share of prompt tokens that were cached."""

    __slots__ = ("bytes", "cached", "cached_of", "media", "media_tokens", "tokens")

    def __init__(self) -> None:
        self.bytes = self.tokens = self.cached = self.cached_of = self.media = self.media_tokens = 0.0


class Inputs:
    """The estimator: keyed by (model, application, content), backing off to all requests."""

    __slots__ = ("default", "factors", "limit", "media_tokens", "per_byte")

    def __init__(self, settings: PredictorSettings) -> None:
        self.default = 1.0 / settings.default_bytes_per_token
        self.media_tokens = settings.media_tokens
        self.limit = settings.max_keys
        self.factors: OrderedDict[tuple[str, str, str], Factor] = OrderedDict()
        self.per_byte: dict[tuple[str, str, str], float] = {}

    def estimate(self, arrived: Arrived) -> float:
        """Prompt tokens, cached ones included; at least 1."""
        if arrived.prompt_tokens is not None:
            return max(1.0, float(arrived.prompt_tokens))
        key = (arrived.model, arrived.app, arrived.content)
        per_byte = self.per_byte.get(key)
        if per_byte is None:
            per_byte = self.per_byte.get(GENERAL, self.default)
        tokens = arrived.prompt_bytes * per_byte
        if arrived.media:
            tokens += arrived.media * self._per_media(key)
        return tokens if tokens > 1.0 else 1.0

    def cached_share(self, arrived: Arrived) -> float:
        """Share of prompt tokens usually found cached, for requests whose prefixes are not known."""
        factor = self.factors.get((arrived.model, arrived.app, arrived.content))
        if factor is None or factor.cached_of <= 0:
            return 0.0
        return min(0.99, factor.cached / factor.cached_of)

    def _per_media(self, key: tuple[str, str, str]) -> float:
        factor = self.factors.get(key)
        if factor is None or factor.media < 1.0:
            return self.media_tokens
        return factor.media_tokens / factor.media

    def learn(self, lesson: Lesson) -> None:
        """Correct the factors by the answer's own count."""
        tokens = lesson.prompt_tokens
        if not tokens or lesson.prompt_bytes <= 0:
            return
        for key in ((lesson.model, lesson.app, lesson.content), GENERAL):
            self._learn(key, lesson, float(tokens))
        while len(self.factors) > self.limit:
            gone, _ = self.factors.popitem(last=False)
            self.per_byte.pop(gone, None)

    def _learn(self, key: tuple[str, str, str], lesson: Lesson, tokens: float) -> None:
        factor = self.factors.setdefault(key, Factor())
        self.factors.move_to_end(key)
        if lesson.media:
            text = lesson.prompt_bytes * self.per_byte.get(key, self.default)
            factor.media = FORGET * factor.media + lesson.media
            factor.media_tokens = FORGET * factor.media_tokens + max(0.0, tokens - text)
        else:
            factor.bytes = FORGET * factor.bytes + lesson.prompt_bytes
            factor.tokens = FORGET * factor.tokens + tokens
            self.per_byte[key] = factor.tokens / factor.bytes
        if lesson.cached_tokens is not None:
            factor.cached = FORGET * factor.cached + min(lesson.cached_tokens, tokens)
            factor.cached_of = FORGET * factor.cached_of + tokens
