"""Does drafting pay? The roofline's step times turned into break-even acceptance, ceiling and gain.

Symbols as in the routing theory: ``n`` sequences, ``k`` drafted tokens, acceptance length AL = tokens
per step with the bonus token included. A speculative step takes ``AL*`` times a plain one, so it must
yield ``AL*`` tokens to break even; ``AL* > k + 1`` cannot pay whatever is accepted, and
``(k + 1) / AL*`` is the most it can ever gain. None of this needs to know the acceptance; only the
gain does.
"""

from typing import NamedTuple

from policies.roofline import Network, Pass, Setting, forward

EAGLE_VOCABULARY = 32_000
"""Published EAGLE-3 heads draft from a reduced vocabulary of this size."""
METHODS = ("draft", "eagle", "mtp", "ngram")


class Verdict(NamedTuple):
    """What speculation with depth ``k`` does at batch ``n``."""

    n: int
    k: int
    plain: Pass
    verify: Pass
    draft_seconds: float
    step_seconds: float
    break_even_length: float
    """Tokens a step must yield (bonus token included) so that speculation is no slower."""
    break_even_rate: float
    """The same as accepted ÷ drafted tokens."""
    break_even_alpha: float | None
    """The same as per-token acceptance; None when not even full acceptance suffices."""
    ceiling: float
    """Gain if every draft were accepted."""
    alpha: float
    length: float
    """Acceptance length expected at ``alpha``, in steps that carry drafts."""
    gain: float
    """Seconds per token without speculation ÷ with it, over all steps."""


def drafting_head(network: Network, method: str) -> Network:
    """The one-layer drafter that EAGLE-3 (small own head) or MTP (the target's head) runs per drafted token.

    Its layer is taken as large as an average layer's active weights of the target.
    """
    body = network.active_parameters - network.head_parameters
    layer = body / network.layers + 3.0 * network.hidden**2
    vocabulary = min(network.vocabulary, EAGLE_VOCABULARY) if method == "eagle" else network.vocabulary
    return Network(
        f"{method} head",
        layer + vocabulary * network.hidden,
        1,
        network.hidden,
        vocabulary,
        network.attention_width,
        network.kv_values,
        1,
        tied=True,
    )


def draft_seconds(setting: Setting, n: int, k: int) -> float:
    """Seconds spent on drafting ``k`` tokens for each of ``n`` sequences."""
    if k == 0:
        return 0.0
    if setting.method == "ngram":
        return setting.calibration.lookup_seconds
    network = setting.drafter or drafting_head(setting.network, setting.method)
    weights = setting.drafter_weights or setting.weights
    return k * forward(setting, network, weights, n, 1).seconds


def acceptance_length(alpha: float, k: int) -> float:
    """Tokens per step when each draft is accepted with ``alpha`` given the ones before it: Σ α^i, i = 0 … k.

    Leviathan et al., arXiv 2211.17192, eq. 1.
    """
    return float(sum(alpha**i for i in range(k + 1)))


def alpha_for(length: float, k: int) -> float | None:
    """Per-token acceptance that yields ``length`` tokens per step; None when ``k`` drafts cannot."""
    if length > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if acceptance_length(middle, k) < length else (low, middle)
    return high


def mixed(ratio: float, share: float) -> float:
    """Mean over all steps of something that is ``ratio`` in a ``share`` of them and 1 in the others."""
    return 1.0 + share * (ratio - 1.0)


def judge(setting: Setting, n: int, k: int, alpha: float) -> Verdict:
    """Depth ``k`` at batch ``n``, expected to accept each draft with ``alpha``.

    Raises ValueError for k < 1 or n < 1.
    """
    if n < 1 or k < 1:
        raise ValueError("batch and depth start at 1")
    plain = forward(setting, setting.network, setting.weights, n, 1)
    verify = forward(setting, setting.network, setting.weights, n, k + 1)
    drafting = draft_seconds(setting, n, k)
    step = verify.seconds + drafting
    even, length = step / plain.seconds, acceptance_length(alpha, k)
    return Verdict(
        n,
        k,
        plain,
        verify,
        drafting,
        step,
        even,
        (even - 1.0) / k,
        alpha_for(even, k),
        (k + 1) / even,
        alpha,
        length,
        mixed(length, setting.share) / mixed(even, setting.share),
    )


def best_depth(setting: Setting, n: int, alpha: float, deepest: int = 16) -> Verdict:
    """The depth with the highest gain at ``alpha``; the shallowest of equals."""
    return max((judge(setting, n, k, alpha) for k in range(1, deepest + 1)), key=lambda verdict: verdict.gain)
