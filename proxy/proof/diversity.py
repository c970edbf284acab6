"""Is a prompt set, or a run's output, made of different texts? Overlap of shingles, measured and judged.

A *piece* is a word, a punctuation mark, or one character of a script written without spaces. Shingles are
runs of 8 pieces in prompts and of 16 in outputs. In prompts every number counts as the same piece, so that a
template with other figures in it, or padding that counts, is seen for what it is. Thresholds: see docs/bench.md for the distributions on
public sets that they were set against.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PROMPT_SHINGLE = 8
OUTPUT_SHINGLE = 16
SIMILAR = 0.8
"""Jaccard similarity of two prompts' words from which they count as near-duplicates."""

_PIECE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")

Shingle = tuple[str, ...]


class Diversity(NamedTuple):
    """What a prompt set's texts have in common; shares are between 0 and 1."""

    prompts: int
    containment: float
    """Mean share of a prompt's shingles that stand in an earlier prompt."""
    duplicates: float
    """Share of prompts that equal an earlier one after case and spaces."""
    near_duplicates: float
    """Share of prompts whose words are those of an earlier one to SIMILAR or more; duplicates included."""
    self_repetition: float
    """Mean share of a prompt's shingles that it has used before itself."""
    self_repeating: float
    """Share of prompts in which that share is above 0.3."""


def pieces(text: str) -> list[str]:
    """Words, marks and single Han, kana or hangul characters, in lower case."""
    return _PIECE.findall(text.lower())


def shingles(found: Sequence[str], size: int) -> list[Shingle]:
    """All runs of ``size`` pieces; one short run when there are fewer; none when there are no pieces."""
    if not found:
        return []
    return [tuple(found[at : at + size]) for at in range(max(1, len(found) - size + 1))]


def measure(texts: Sequence[str]) -> Diversity:
    """Overlap within and between prompts. Raises ValueError for an empty set."""
    if not texts:
        raise ValueError("no prompts")
    seen: set[Shingle] = set()
    contained, repeated = [], []
    numberless = [["0" if piece.isdigit() else piece for piece in pieces(text)] for text in texts]
    for found in numberless:
        own = shingles(found, PROMPT_SHINGLE)
        contained.append(_share(shingle in seen for shingle in own))
        repeated.append(1 - len(set(own)) / len(own) if own else 0.0)
        seen.update(own)
    flat = [" ".join(pieces(text)) for text in texts]
    return Diversity(
        prompts=len(texts),
        containment=_mean(contained),
        duplicates=1 - len(set(flat)) / len(flat),
        near_duplicates=_share(_similar_to_earlier(numberless)),
        self_repetition=_mean(repeated),
        self_repeating=_share(share > 0.3 for share in repeated),
    )


def _similar_to_earlier(texts: Sequence[Sequence[str]]) -> list[bool]:
    bags = [frozenset(text) for text in texts]
    return [any(_alike(bag, earlier) for earlier in bags[:at]) for at, bag in enumerate(bags)]


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    small, large = sorted((len(one), len(other)))
    if small < SIMILAR * large:  # sets of such unlike sizes cannot be similar: spares most intersections
        return False
    common = len(one & other)
    return common >= SIMILAR * (len(one) + len(other) - common)


class OutputMemory:
    """Which runs of 16 pieces one arm has emitted so far."""

    def __init__(self) -> None:
        self._seen: set[Shingle] = set()

    def emit(self, text: str) -> tuple[float, float] | None:
        """Share of the text's shingles in earlier outputs, and share repeated within itself; None when too short."""
        own = shingles(pieces(text), OUTPUT_SHINGLE)
        if not own or len(own[0]) < OUTPUT_SHINGLE:
            return None
        earlier = _share(shingle in self._seen for shingle in own)
        self._seen.update(own)
        return earlier, 1 - len(set(own)) / len(own)


def output_repetition(texts: Iterable[str]) -> tuple[float, float, int]:
    """Mean share repeated from earlier outputs, mean share repeated within, outputs judged."""
    memory = OutputMemory()
    judged = [shares for text in texts if (shares := memory.emit(text)) is not None]
    return _mean([e for e, _ in judged]), _mean([w for _, w in judged]), len(judged)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _share(facts: Iterable[bool]) -> float:
    return _mean([float(fact) for fact in facts])
