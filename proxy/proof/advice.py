"""Which of several settings to take, per kind and load, and how sure that is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.proof.arm import PLAIN, Sample
from proxy.proof.compare import (
    ALL_KINDS,
    DOES_NOT_PAY,
    FEWEST_BLOCKS,
    NOT_ENOUGH,
    PAYS,
    alike,
    change,
    judge,
    match,
)
from proxy.proof.course import Course
from proxy.proof.figures import Figures, figures_of
from proxy.proof.intervals import Interval, bootstrap, holm, sign_flip_p, tamed, typical_ratio


class Setting(NamedTuple):
    """One arm in one cell."""

    label: str
    depth: int | None
    figures: Figures
    gain: Interval | None
    """Seconds of the reference ÷ seconds of this arm at equal length; None for the reference itself."""
    p: float
    behind_best: Interval | None
    """Seconds of this arm ÷ seconds of the best; None for the best itself."""


class Advice(NamedTuple):
    """What to set for a kind at a load."""

    load: str
    kind: str
    reference: str
    settings: tuple[Setting, ...]
    best: str
    tied: tuple[str, ...]
    """Arms that cannot be told from the best, itself included."""
    take: str
    """The recommendation: of the tied ones the shallowest that speculates; ``plain`` where that is shown to be best."""
    verdict: str
    """Of the recommended arm against plain; "not enough data" without a plain arm."""
    sentence: str


def advise(
    course: Course, arms: Sequence[str], depths: Mapping[str, int | None], plain: str | None, seed: int = 1
) -> list[Advice]:
    """An advice per load for all kinds together and for each kind that has enough prompts.

    The reference is the plain arm where there is one, else the first arm. Verdicts are held to the same
    family-wise error as in ``compare``, over all cells and arms.
    """
    reference = plain or arms[0]
    loads = list(dict.fromkeys(sample.place.load for sample in course.samples))
    kinds = sorted({sample.kind for sample in course.samples})
    cells = [(load, kind) for load in loads for kind in (None, *(kinds if len(kinds) > 1 else ()))]
    judged = []
    for load, kind in cells:
        samples = [s for s in course.samples if s.place.load == load and kind in (None, s.kind)]
        settings = _settings(course, samples, arms, depths, reference, kind, seed)
        if settings:
            judged.append((load, kind or ALL_KINDS, settings))
    adjusted = iter(holm([s.p for _, _, settings in judged for s in settings if s.label != reference]))
    return [
        _concluded(
            load, kind, reference, [(s, 1.0 if s.label == reference else next(adjusted)) for s in settings], plain
        )
        for load, kind, settings in judged
    ]


def _settings(
    course: Course,
    samples: Sequence[Sample],
    arms: Sequence[str],
    depths: Mapping[str, int | None],
    reference: str,
    kind: str | None,
    seed: int,
) -> list[Setting]:
    found = []
    for arm in arms:
        pairs = tamed([alike(m) for m in match(samples, reference, arm)])
        if len({pair.block for pair in pairs}) < FEWEST_BLOCKS:
            continue
        figures = figures_of(course, [s for s in samples if s.arm == arm], arm, kind, seed)
        depth = 0 if arm == PLAIN else depths.get(arm)
        own = arm == reference
        gain = None if own else bootstrap(pairs, typical_ratio, seed=seed)
        found.append(Setting(arm, depth, figures, gain, 1.0 if own else sign_flip_p(pairs, seed=seed), None))
    if len(found) < 2:
        return []
    best = max(found, key=_value).label
    return [s if s.label == best else s._replace(behind_best=_behind(samples, s.label, best, seed)) for s in found]


def _value(setting: Setting) -> float:
    return 1.0 if setting.gain is None else setting.gain.value


def _behind(samples: Sequence[Sample], arm: str, best: str, seed: int) -> Interval | None:
    return bootstrap(tamed([alike(m) for m in match(samples, arm, best)]), typical_ratio, seed=seed)


def _concluded(
    load: str, kind: str, reference: str, judged: Sequence[tuple[Setting, float]], plain: str | None
) -> Advice:
    settings = tuple(setting for setting, _ in judged)
    best = max(settings, key=_value)
    tied = [s for s in settings if s.behind_best is None or s.behind_best.low <= 1]
    drafting = [s for s in tied if s.label != plain]
    take = (
        min(drafting, key=lambda s: s.depth if s.depth is not None else _place(settings, best, s)) if drafting else best
    )
    verdicts = {s.label: judge(s.gain, adjusted) for s, adjusted in judged if s.label != reference}
    verdict = NOT_ENOUGH
    if plain is not None and set(verdicts.values()) == {DOES_NOT_PAY}:
        verdict = DOES_NOT_PAY
    elif plain is not None:
        verdict = verdicts.get(take.label, NOT_ENOUGH)
    names = tuple(s.label for s in tied)
    sentence = _in_words(take, best, names, verdict, plain)
    return Advice(load, kind, reference, settings, best.label, names, take.label, verdict, sentence)


def _place(settings: Sequence[Setting], best: Setting, setting: Setting) -> int:
    """Settings without a depth: the best one first."""
    return -1 if setting.label == best.label else settings.index(setting)


def _in_words(take: Setting, best: Setting, tied: Sequence[str], verdict: str, plain: str | None) -> str:
    others = [label for label in tied if label != take.label]
    alike_ = f"; {', '.join(others)} cannot be told from it" if others else ""
    if plain is None:
        return f"Take {take.label}{alike_}. Nothing is known of whether it pays: no plain arm was given."
    gain = (
        "" if take.gain is None else f", {change(take.gain.value)} [{change(take.gain.low)}, {change(take.gain.high)}]"
    )
    if verdict == PAYS:
        return f"Take {take.label}: faster than plain{gain}{alike_}."
    if verdict == DOES_NOT_PAY:
        return f"Do not speculate: every setting that was run is slower than plain ({best.label} is best)."
    if take.label == plain:
        return "No setting is shown to be faster than plain, which is best so far."
    return f"No setting is shown to be faster than plain; {take.label} is the one to watch{gain}{alike_}."
