"""What an engine's counters say about stretches of a run."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from proxy.engines.base import Scrape
from proxy.proof.answer import Acceptance
from proxy.proof.arm import Sample
from proxy.proof.course import CLOSING, Course, Turn


def turn_shares(course: Course, arm: str) -> list[tuple[Turn, Acceptance, float | None]]:
    """Each turn of an arm with the drafting and the generated tokens that fell into it; restarts are left out."""
    turns = [turn for turn in course.turns if turn.arm == arm]
    shares = []
    for turn, later in pairwise(turns):
        start, end = turn.before, later.before
        if turn.block == CLOSING or start is None or end is None:
            continue
        if (moved := difference(start, end)) is not None:
            shares.append((turn, moved, minus(end.generated_tokens, start.generated_tokens)))
    return shares


def difference(before: Scrape, after: Scrape) -> Acceptance | None:
    """Drafting between two looks at the counters; None when they went backwards (the engine was restarted)."""
    moved = Acceptance(
        draft_tokens=minus(after.draft_tokens, before.draft_tokens),
        accepted_tokens=minus(after.accepted_tokens, before.accepted_tokens),
        drafts=minus(after.drafts, before.drafts),
        per_position=_positions(before.accepted_per_position, after.accepted_per_position),
    )
    values = (moved.draft_tokens, moved.accepted_tokens, moved.drafts, *moved.per_position)
    return None if any(value is not None and value < 0 for value in values) else moved


def minus(after: float | None, before: float | None) -> float | None:
    """The difference of two counters; one that was not there before began at nothing."""
    return None if after is None else after - (before or 0.0)


def _positions(before: Sequence[float], after: Sequence[float]) -> tuple[float, ...]:
    padded = [*before, *[0.0] * (len(after) - len(before))]
    return tuple(late - early for early, late in zip(padded, after, strict=False))


def pooled(parts: Iterable[Acceptance]) -> Acceptance | None:
    """Sums of what was told; None when nothing was."""
    told = list(parts)
    if not told:
        return None
    longest = max(len(part.per_position) for part in told)
    return Acceptance(
        draft_tokens=_sum(told, lambda part: part.draft_tokens),
        accepted_tokens=_sum(told, lambda part: part.accepted_tokens),
        drafts=_sum(told, lambda part: part.drafts),
        per_position=tuple(
            sum(part.per_position[place] for part in told if place < len(part.per_position)) for place in range(longest)
        ),
    )


def _sum(parts: Sequence[Acceptance], pick: Callable[[Acceptance], float | None]) -> float | None:
    values = [value for part in parts if (value := pick(part)) is not None]
    return sum(values) if values else None


def acceptance_of(
    course: Course, arm: str, samples: Sequence[Sample], kinds: frozenset[str] | None
) -> Acceptance | None:
    """Drafting of an arm: the engine's word per request first, then counters of turns that held only these kinds.

    ``kinds`` None means the whole run. What one source does not tell (llama.cpp: positions) the other completes.
    """
    told = pooled(sample.acceptance for sample in samples if sample.acceptance is not None)
    loads = {sample.place.load for sample in samples}
    counted = pooled(
        share
        for turn, share, _ in turn_shares(course, arm)
        if turn.load in loads and (kinds is None or turn.kinds <= kinds)
    )
    if told is None or told.draft_tokens is None:
        return counted
    if counted is None:
        return told
    return told._replace(
        drafts=told.drafts if told.drafts is not None else counted.drafts,
        per_position=told.per_position or counted.per_position,
    )
