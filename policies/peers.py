"""What other replicas tell: facts that may come late, twice, out of order, or from another version."""

from collections import OrderedDict
from types import NoneType, UnionType
from typing import Final, get_args

from policies.lesson import Lesson

WINDOW: Final = 1_024
"""Sequence numbers remembered per replica; older ones count as already heard."""


class Heard:
    """Which lessons of one replica were folded in already."""

    __slots__ = ("highest", "recent")

    def __init__(self) -> None:
        self.highest = -1
        self.recent: OrderedDict[int, None] = OrderedDict()

    def is_news(self, sequence: int) -> bool:
        """Whether this sequence number is new; notes it."""
        if sequence in self.recent or sequence <= self.highest - WINDOW:
            return False
        self.recent[sequence] = None
        self.highest = max(self.highest, sequence)
        if len(self.recent) > WINDOW:
            self.recent.popitem(last=False)
        return True


def _kinds(annotation: object) -> tuple[type, ...]:
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return (*kinds, int) if float in kinds else tuple(kinds)


_FIELDS: Final = tuple(_kinds(Lesson.__annotations__[name]) for name in Lesson._fields)
_REQUIRED: Final = len(Lesson._fields) - len(Lesson._field_defaults)


def read_facts(facts: tuple[str | float | int | bool | None, ...]) -> Lesson | None:
    """A lesson from another replica; None when it is not one. Fields added by newer versions are left out."""
    known = facts[: len(_FIELDS)]
    if len(known) < _REQUIRED or not all(_fits(fact, kinds) for fact, kinds in zip(known, _FIELDS, strict=False)):
        return None
    return Lesson(*known)  # type: ignore[arg-type]  # each field was just checked against its annotation


def _fits(fact: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(fact, bool):
        return bool in kinds
    if isinstance(fact, (int, float)) and not 0 <= fact <= 2**63 - 1 and fact != -1:
        return False
    return (isinstance(fact, NoneType) and NoneType in kinds) or type(fact) in kinds
