"""One lesson, handed to every learner it concerns.

*Ignore must not teach*: a cancelled request says something about lengths and nothing about speed; an answer of several
parallel choices says nothing about step times; a repeated prompt says nothing about classes other than its own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from policies.gain import PAYS
from policies.lesson import Lesson, cancelled, seconds_per_token
from policies.state import Fleet, take_stock

if TYPE_CHECKING:
    from policies.backend import Backend


ORDINARY: Final = 5
"""Finished requests after which it is known what an ordinary step of a backend is."""


PURE: Final = 0.8
"""``Speed.purity`` above which a step time says something of the class rather than of the others' prefill."""


def teach(fleet: Fleet, lesson: Lesson, at: float) -> None:
    """Fold one lesson in, whichever replica it comes from."""
    fleet.lengths.learn(lesson)
    fleet.inputs.learn(lesson)
    backend = fleet.backends.get(lesson.backend)
    if cancelled(lesson):
        return
    fleet.applications.learn(lesson)
    if backend is not None and backend.lane == lesson.lane:
        _teach_backend(fleet, backend, lesson, at)
        if fleet.cold:
            take_stock(fleet)


def _teach_backend(fleet: Fleet, backend: "Backend", lesson: Lesson, at: float) -> None:
    _teach_cache(backend, lesson)
    yields = backend.yields
    if lesson.decode_seconds is None:
        yields.learn(lesson)
    else:
        ratio = backend.speed.learn(lesson, yields.steps(lesson))
        telling = backend.speed.completions > ORDINARY and backend.speed.purity > PURE
        yields.learn(lesson, ratio if telling else None)
        blind = backend.speculative and lesson.steps is None and not yields.overall.weight
        if ratio is not None and blind:
            yields.learn_factor(lesson.gain_class, ratio)
        _teach_gain(fleet, backend, lesson, at)
    backend.settle(fleet.settings.cold_requests)


def _teach_cache(backend: "Backend", lesson: Lesson) -> None:
    if lesson.cached_tokens is None or lesson.expected_cached_tokens < 64.0:
        return
    claimed = lesson.expected_cached_tokens / max(backend.cache_trust, 0.05)
    backend.cache_trust += 0.1 * (min(1.0, lesson.cached_tokens / claimed) - backend.cache_trust)
    backend.cache_trust = max(0.05, backend.cache_trust)


def _teach_gain(fleet: Fleet, backend: "Backend", lesson: Lesson, at: float) -> None:
    """Bring the token time to the common load before comparing lanes: a crowded lane is not a slow one."""
    pace = seconds_per_token(lesson)
    if (
        pace is None
        or pace <= 0.0
        or (not lesson.streamed and lesson.output_tokens is not None and lesson.output_tokens < 8)
    ):
        return
    verdicts = fleet.verdicts
    verdicts.crowd += 0.02 * (lesson.crowd - verdicts.crowd)
    speed = backend.speed
    alike = speed.step_seconds(verdicts.crowd) / speed.step_seconds(lesson.crowd)
    if verdicts.learn(lesson.gain_class, lesson.lane, pace * alike, at):
        backend.yields.forget(lesson.gain_class)
    prove(fleet, lesson.gain_class)


def prove(fleet: Fleet, gain_class: str) -> None:
    """Let no model of steps contradict a measured gain: where speculation is shown to pay, a speculative backend yields at
    least what the gain implies at equal load. Acceptance says little where steps differ in price (an n-gram drafter on a
    CPU: 10 tokens a step and a gain of 1.25), and such a class stayed on the plain lane although its verdict was "pays".
    """
    verdicts = fleet.verdicts
    known = verdicts.classes[gain_class]
    gain = known.gain(verdicts.rules.confidence_z).ratio if known.state == PAYS else None
    drafters = [backend for backend in fleet.backends.values() if backend.speculative]
    at_least = gain * _step_ratio(fleet, drafters) if gain else 0.0
    for backend in drafters:
        backend.yields.prove(gain_class, at_least)


def _step_ratio(fleet: Fleet, drafters: Sequence["Backend"]) -> float:
    """A speculative step ÷ a plain one, as usual: of the fastest drafter, or one that slows down would prove itself better."""
    crowd = fleet.verdicts.crowd
    plain = [b.speed.usual_step_seconds(crowd) for b in fleet.backends.values() if not b.speculative and b.warm]
    fast = min((backend.speed.usual_step_seconds(crowd) for backend in drafters if backend.warm), default=0.0)
    return fast * len(plain) / sum(plain) if plain else 0.0
