"""What the judgement answers: a decision with its reason, or why there is none."""

from typing import Final, NamedTuple

SPECULATIVE: Final = "speculative"
PLAIN: Final = "plain"
DECODE_HEAVY: Final = "decode-heavy"
PROMPT_HEAVY: Final = "prompt-heavy"
NEVER: Final = 1e6
"""A break-even ratio this high says that speculation pays at no output length; a number, so that it survives JSON."""


class Decision(NamedTuple):
    """Where a request goes, and everything needed to say why in a sentence."""

    id: str
    backend: str
    lane: str
    workload: str
    """``decode-heavy`` or ``prompt-heavy``."""
    reason: str
    """A short stable word: ``break-even``, ``cold-start``, ``forced``, ``lane-rule:min_p``, ``explore``, ``probe``,
    ``only-backend``, ``sticky``, ``does-not-pay``, ``after:refused`` (asked again after a fault) …"""
    policy: str
    alternates: tuple[str, ...]
    """Backends to try next, best first."""
    input_tokens: float
    """Estimated prompt tokens."""
    uncached_tokens: float
    """Of those, tokens the chosen backend has not cached."""
    output_tokens: float
    """Predicted."""
    ratio: float
    """Predicted output ÷ uncached input."""
    break_even: float | None
    """Ratio above which speculation pays at this moment; None when it is not known yet."""
    costs: tuple[tuple[str, float], ...] = ()
    """(backend, J in seconds), best first."""
    output_from: str = ""
    """Which predictor level answered, for example ``app+model+system`` or ``default``."""


class NoBackend(NamedTuple):
    """No backend can serve the request at all. ``cause``: ``unknown-model``, ``none-healthy``, ``too-long``."""

    id: str
    model: str
    cause: str


class Overloaded(NamedTuple):
    """Every backend is at its limit."""

    id: str
    model: str
    retry_after_seconds: float


Verdict = Decision | NoBackend | Overloaded
