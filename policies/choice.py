"""What a policy answers: backends in order, and why."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from policies.backend import Backend
from policies.live import Live

if TYPE_CHECKING:
    from policies.fleet import Fleet


class Choice(NamedTuple):
    """A ranking of the candidates."""

    ranked: Sequence[Backend]
    """Best first; never empty."""
    reason: str
    break_even_tokens: float | None = None
    """Output tokens above which the best speculative backend beats the best plain one; None: not known."""
    costs: tuple[tuple[str, float], ...] = ()
    """(backend, J in seconds), best first."""


Policy = Callable[["Fleet", Live, Sequence[Backend]], Choice]
"""Ranks the candidates (at least two) for a request. Reads the fleet, changes nothing."""
