"""What kind of request this is: names for its class, and keys under which its like is remembered.

Intent: everything learnt is learnt per key, so the keys decide what can be known. Per-application history predicts the
output length within a factor of two for about 80 % of requests, a global median for 20 %; the prompt itself adds little.
Reads: ``Arrived`` only. Settings: none.
When it is wrong: an application that mixes unlike tasks under one name and one system prompt is one key, hence one
average. Give each task its own API key or ``x-draftlane-app``.
"""

from math import log2
from typing import Final

from policies.decision import DECODE_HEAVY, PROMPT_HEAVY
from policies.events import Arrived

REPEATED: Final = "repeated"
"""Band of requests whose very prompt was seen before: legitimate traffic that must not teach other classes."""


def temperature_band(temperature: float | None) -> str:
    """``greedy``, ``low`` (≤ 0.5), ``mid`` (≤ 1), ``high`` or ``default`` (the client did not say)."""
    if temperature is None:
        return "default"
    if temperature <= 0.0:
        return "greedy"
    if temperature <= 0.5:
        return "low"
    return "mid" if temperature <= 1.0 else "high"


def gain_class(arrived: Arrived, repeated: bool) -> str:
    """The class a verdict is given for: ``model|application|content|temperature band``."""
    band = REPEATED if repeated else temperature_band(arrived.temperature)
    return f"{arrived.model}|{arrived.app}|{arrived.content}|{band}"


def size_bin(tokens: float) -> int:
    """Sixth of an octave of a token count: 0 for one token, +6 per doubling. Templates of one application differ in
    size by little: on a public chat trace half-octaves mean |log2 error| 0.45, sixths 0.37."""
    return int(6.0 * log2(tokens)) if tokens > 1.0 else 0


def special_key(arrived: Arrived, input_tokens: float) -> tuple[object, ...]:
    """The most special of the ``length_keys`` alone; most requests need no other."""
    sampled = arrived.temperature is None or arrived.temperature > 0.0
    size = int(6.0 * log2(input_tokens)) if input_tokens > 1.0 else 0
    return (arrived.app, arrived.model, arrived.system, arrived.features, sampled, size)


def length_keys(
    app: str, model: str, system: int, features: tuple[str, ...], sampled: bool, size: int
) -> tuple[tuple[object, ...], ...]:
    """Keys of output-length histories, most special first; the names of the levels are ``LEVELS``."""
    rough = size // 3
    return (
        (app, model, system, features, sampled, size),
        (app, model, system, features, sampled, rough, "half-octave"),
        (app, model, system, features, sampled),
        (app, model, None, None, None, rough),
        (app, model),
        (None, model, rough),
        (None, model),
        (),
    )


LEVELS: Final = (
    "app+model+system+features+size",
    "app+model+system+features+rough size",
    "app+model+system+features",
    "app+model+size",
    "app+model",
    "model+size",
    "model",
    "global",
)
SPECIAL: Final = 5
"""The first this many levels belong to one application; an answer from them counts as covered."""


def workload(ratio: float, break_even: float) -> str:
    """``decode-heavy`` when a request has more output per uncached input token than the break-even ratio."""
    return DECODE_HEAVY if ratio > break_even else PROMPT_HEAVY
