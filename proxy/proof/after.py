"""Traps that only the run itself shows: in outputs, order, caches, counters."""

import math
from collections.abc import Iterable, Sequence

from proxy.engines.base import Discovered
from proxy.proof.arm import PLAIN, SPECULATIVE, Sample
from proxy.proof.before import limit
from proxy.proof.compare import Matched, alike, match, pairs_of
from proxy.proof.counters import acceptance_of, turn_shares
from proxy.proof.course import Course
from proxy.proof.diversity import output_repetition
from proxy.proof.figures import tpot
from proxy.proof.findings import Finding, found
from proxy.proof.intervals import Slope, bootstrap, theil_sen, typical_ratio

FEWEST = 16
"""Samples from which a trend or a share is worth a word."""
TEMPLATE_TOKENS = 32
"""Cached tokens per prompt that every chat template shares; more is a cached prompt."""


def run_findings(course: Course, plain: Discovered, speculative: Discovered) -> list[Finding]:
    """All that the measured requests give away."""
    good = [sample for sample in course.samples if sample.ok]
    matched = match(course.samples, PLAIN, SPECULATIVE)
    checks: Iterable[Iterable[Finding]] = (
        _tokenizers(matched),
        _lengths(matched),
        _caches(good),
        _order(good, matched),
        _drafting(course, plain, speculative),
    )
    return [*arm_findings_of(course, (PLAIN, SPECULATIVE)), *(finding for check in checks for finding in check)]


def arm_findings_of(course: Course, arms: Sequence[str]) -> list[Finding]:
    """What each arm's requests give away by themselves."""
    good = [sample for sample in course.samples if sample.ok]
    checks: Iterable[Iterable[Finding]] = (
        _failures(course.samples, arms),
        _usage(good, arms),
        _outputs(good, arms),
        _cut(good),
        _traffic(course, arms),
        [found("interrupted", f"{len(course.samples)} of {course.planned} requests.")] if course.interrupted else [],
    )
    return [finding for check in checks for finding in check]


def _of(samples: Sequence[Sample], arm: str) -> list[Sample]:
    return [sample for sample in samples if sample.arm == arm]


def _failures(samples: Sequence[Sample], arms: Sequence[str]) -> Iterable[Finding]:
    for arm in arms:
        tried = _of(samples, arm)
        failed = [sample for sample in tried if not sample.ok]
        if failed:
            share = len(failed) / len(tried)
            name = "failures" if share > limit("failures") else "some-failures"
            yield found(name, f"{len(failed)} of {len(tried)} on {arm} failed ({failed[0].error}).", share)


def _usage(good: Sequence[Sample], arms: Sequence[str]) -> Iterable[Finding]:
    for arm in arms:
        asked = _of(good, arm)
        without = sum(sample.completion_tokens is None for sample in asked)
        if asked and without / len(asked) > limit("no-usage"):
            yield found(
                "no-usage", f"{arm} counted no tokens in {without} of {len(asked)} answers.", without / len(asked)
            )


def _tokenizers(matched: Sequence[Matched]) -> Iterable[Finding]:
    counts = [(m.first.prompt_tokens, m.second.prompt_tokens) for m in matched]
    told = [(one, other) for one, other in counts if one is not None and other is not None]
    unlike = [(one, other) for one, other in told if one != other]
    if unlike:
        example = f"for example {unlike[0][0]} on plain and {unlike[0][1]} on speculative"
        share = len(unlike) / len(told)
        yield found("different-tokenizers", f"{len(unlike)} of {len(told)} prompts, {example}.", share)


def _lengths(matched: Sequence[Matched]) -> Iterable[Finding]:
    interval = bootstrap(pairs_of(matched, lambda sample: sample.completion_tokens), typical_ratio)
    if interval is None or interval.low <= 1 <= interval.high:
        return
    factor = max(interval.value, 1 / interval.value)
    if factor > limit("different-lengths"):
        longer = PLAIN if interval.value > 1 else SPECULATIVE
        yield found("different-lengths", f"Answers of the {longer} arm are {factor:.2f}× as long.", factor)


def _caches(good: Sequence[Sample]) -> Iterable[Finding]:
    shares = {}
    for arm in (PLAIN, SPECULATIVE):
        told = [s for s in _of(good, arm) if s.cached_tokens is not None and s.prompt_tokens]
        cached = sum(max(0, (s.cached_tokens or 0) - TEMPLATE_TOKENS) for s in told)
        shares[arm] = cached / total if (total := sum(s.prompt_tokens or 0 for s in told)) else None
    plain, speculative = shares[PLAIN], shares[SPECULATIVE]
    if plain is None or speculative is None:
        return
    said = f"{plain:.0%} of the prompt tokens came from the cache on plain, {speculative:.0%} on speculative."
    if abs(plain - speculative) > limit("prefix-cache"):
        yield found("prefix-cache", said, abs(plain - speculative))
    elif max(plain, speculative) > limit("cached-prompts"):
        yield found("cached-prompts", said, max(plain, speculative))


def _outputs(good: Sequence[Sample], arms: Sequence[str]) -> Iterable[Finding]:
    seen = {arm: output_repetition(sample.text for sample in _of(good, arm)) for arm in arms}
    arm = max(seen, key=lambda name: seen[name][0])
    earlier, _, judged = seen[arm]
    if earlier > limit("repeated-outputs"):
        said = f"{earlier:.0%} of the 16-word runs of {judged} answers on {arm} stood in earlier answers."
        yield found("repeated-outputs", said, earlier)
    arm = max(seen, key=lambda name: seen[name][1])
    within = seen[arm][1]
    if within > limit("looping-outputs"):
        yield found("looping-outputs", f"{within:.0%} of an answer's 16-word runs on {arm} repeat it itself.", within)


def _cut(good: Sequence[Sample]) -> Iterable[Finding]:
    cut = sum(sample.finish_reason == "length" for sample in good)
    if len(good) >= FEWEST and cut / len(good) > limit("answers-cut"):
        yield found("answers-cut", f"{cut} of {len(good)} answers were cut at max_tokens.", cut / len(good))


def _order(good: Sequence[Sample], matched: Sequence[Matched]) -> Iterable[Finding]:
    """Gain and tokens per step over the run order, each load for itself."""
    for load in dict.fromkeys(sample.place.load for sample in good):
        here = [m for m in matched if m.first.place.load == load]
        gains = [math.log(pair.first / pair.second) for m in here if (pair := alike(m)).first > 0 and pair.second > 0]
        steps = [value for m in here if (value := _log_tokens_per_step(m.second)) is not None]
        yield from _trend(theil_sen(gains), f"The gain at {load}")
        yield from _trend(theil_sen(steps), f"Tokens per step at {load}")
        yield from _drift([m.first for m in here], load)


def _trend(slope: Slope | None, what: str) -> Iterable[Finding]:
    if slope is None or slope.points < FEWEST:
        return
    growth = slope.growth()
    if slope.low > 0 and growth > limit("grows-with-order"):
        yield found("grows-with-order", f"{what} is {growth:.2f}× as high at the end as at the start.", growth)
    elif slope.high < 0 and 1 / growth > limit("shrinks-with-order"):
        yield found("shrinks-with-order", f"{what} is {growth:.2f}× of what it was at the start.", 1 / growth)


def _drift(plain: Sequence[Sample], load: str) -> Iterable[Finding]:
    speeds = [math.log(value) for sample in plain if (value := sample.tpot_seconds)]
    slope = theil_sen(speeds)
    if slope is None or slope.points < FEWEST or slope.low <= 0 <= slope.high:
        return
    factor = max(slope.growth(), 1 / slope.growth())
    if factor > limit("machine-drift"):
        yield found("machine-drift", f"Its seconds per token at {load} changed {slope.growth():.2f}×.", factor)


def _log_tokens_per_step(sample: Sample) -> float | None:
    tokens = sample.completion_tokens
    if sample.acceptance is None or sample.acceptance.accepted_tokens is None or not tokens:
        return None
    steps = tokens - sample.acceptance.accepted_tokens
    return math.log(tokens / steps) if steps > 0 else None


def _drafting(course: Course, plain: Discovered, speculative: Discovered) -> Iterable[Finding]:
    drafted = {}
    for arm in (PLAIN, SPECULATIVE):
        told = acceptance_of(course, arm, [s for s in _of(course.samples, arm) if s.ok], None)
        drafted[arm] = None if told is None else told.draft_tokens
    if drafted[PLAIN] and not plain.speculative:
        yield found("plain-speculates", f"{drafted[PLAIN]:.0f} tokens were drafted on the plain arm.", drafted[PLAIN])
    if speculative.speculative is False or drafted[SPECULATIVE]:
        return
    if drafted[SPECULATIVE] is None:
        yield found("acceptance-unknown", f"The {speculative.engine} engine tells neither per request nor in counters.")
    elif speculative.speculative or speculative.drafts_always is False:
        yield found("never-drafted", "It is configured to speculate, and drafted no token.", 0.0)
    else:
        yield found("not-speculating", "Not one token was drafted.", 0.0)


def _traffic(course: Course, arms: Sequence[str]) -> Iterable[Finding]:
    for arm in arms:
        counted = [tokens for _, _, tokens in turn_shares(course, arm) if tokens is not None]
        ours = sum(s.completion_tokens or 0 for s in _of(course.samples, arm))
        if not counted or not ours or course.interrupted:
            continue
        others = (sum(counted) - ours) / ours
        if others > limit("other-traffic"):
            yield found("other-traffic", f"{arm} generated {others:.0%} more tokens than this run received.", others)


def memory_findings(first: Sequence[Sample], again: Sequence[Sample]) -> list[Finding]:
    """The same fresh prompts twice at temperature 0 on the speculative arm: is the second time drafted better?"""
    for what, measure_of in (("tokens per step", _tokens_per_step), ("speed", _mean_speed)):
        before, later = measure_of(first), measure_of(again)
        if before is not None and later is not None:
            grown = later / before
            said = f"Seen a second time, a prompt's {what} went from {before:.2f} to {later:.2f}."
            return [found("engine-memory", said, grown)] if grown > limit("engine-memory") else []
    return []


def _tokens_per_step(samples: Sequence[Sample]) -> float | None:
    told = [
        s
        for s in samples
        if s.acceptance is not None and s.acceptance.accepted_tokens is not None and s.completion_tokens
    ]
    tokens = sum(s.completion_tokens or 0 for s in told)
    accepted = sum(s.acceptance.accepted_tokens or 0 for s in told if s.acceptance is not None)
    return tokens / (tokens - accepted) if tokens > accepted else None


def _mean_speed(samples: Sequence[Sample]) -> float | None:
    """Tokens per second after the first one."""
    told = [1 / seconds for s in samples if (seconds := tpot(s))]
    return sum(told) / len(told) if told else None
