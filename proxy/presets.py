"""Hardware and drafters that ``draftlane simulate`` knows by name. All of it modelled, none of it a GPU run of ours.

Hardware: the roofline of ``draftlane estimate`` as straight lines. A step reads the weights once (F, with the
overhead of a pass), each token costs two operations per active weight (κ), each cached token is read once per
step (η). Reading and arithmetic are added, where the roofline takes the longer of the two: in a mixed batch of
prompts and decodes they overlap little. Windowed attention layers count as free.

Drafters: chance per token and share of steps with drafts per kind of content. Modelled after the ranges that
the EAGLE-3 and prompt-lookup literature reports at depth 3; parameters chosen by us, no data set is copied.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from policies.roofline import CALIBRATION, Chip, Network, Weights, layer_seconds, stored_bytes, weight_bytes
from policies.simulation_server import Engine
from policies.simulation_workload import Acceptance, Asked, Drafter
from proxy import profiles

_MEMORY_SHARE = 0.90
"""Of the device's memory an engine takes (vLLM's gpu_memory_utilization)."""
_ACTIVATION_BYTES = 3e9
_ROUTED_TOKENS = 16.0
"""Tokens per step at which a mixture of experts is looked at: the experts a step wakes enter F, which is one number here."""
_KV_BYTES = 2.0


class Hardware(NamedTuple):
    """Step-time parameters of a plain server."""

    fixed_seconds: float
    token_seconds: float
    cache_seconds: float
    cache_tokens: int


class NoRoomError(ValueError):
    """The weights leave no memory for a cache."""


def hardware(chip: Chip, network: Network, weights: Weights) -> Hardware:
    """The roofline as three slopes. Raises ``NoRoomError`` when the model does not fit the chip."""
    used = CALIBRATION
    bandwidth = chip.bandwidth * used.bandwidth_share
    rate = chip.tensor_flops * used.tensor_share * (chip.narrow_rate if weights.narrow else 1.0)
    kv = network.full_layers * network.kv_values * _KV_BYTES
    room = chip.memory_bytes * _MEMORY_SHARE - stored_bytes(network, weights) - _ACTIVATION_BYTES
    if room < 2048 * kv:
        raise NoRoomError(f"{network.name} in {weights.name} leaves no room for a cache on {chip.name}")
    overhead = used.pass_seconds + network.layers * layer_seconds(used, network, chip.devices)
    return Hardware(
        fixed_seconds=weight_bytes(network, weights, _ROUTED_TOKENS) / bandwidth + overhead,
        token_seconds=2.0 * network.active_parameters / rate,
        cache_seconds=kv / bandwidth,
        cache_tokens=int(room / kv),
    )


class Method(NamedTuple):
    """A drafter preset."""

    depth: int
    draft_share: float
    """δ: seconds of one draft token in units of F."""
    chances: dict[str, tuple[float, float, float]]
    """Kind of content → (chance that a draft token is accepted, spread of AL − 1 between requests, share of steps with
    drafts)."""
    origin: str
    family: str
    """Word that the ``method`` of a measured profile begins with."""
    always: bool = True
    """False: drafts only when it finds a match."""


_EAGLE = {"chat": (0.62, 0.25, 1.0), "code": (0.70, 0.25, 1.0), "summary": (0.64, 0.17, 1.0), "math": (0.66, 0.15, 1.0)}
_NGRAM = {"chat": (0.85, 1.0, 0.15), "code": (0.88, 0.6, 0.42), "summary": (0.82, 0.5, 0.14), "math": (0.78, 0.5, 0.08)}

METHODS: dict[str, Method] = {
    "eagle-like": Method(3, 0.10, _EAGLE, "modelled: a one-layer draft head, always drafting", "eagle"),
    "ngram-like": Method(3, 0.01, _NGRAM, "modelled: prompt lookup, drafts only at a match", "ngram", always=False),
    "ngram-always": Method(3, 0.01, _NGRAM, "modelled: prompt lookup that fills every step with drafts", "ngram"),
    "small-model": Method(
        5,
        0.18,
        {"chat": (0.70, 0.2, 1.0), "code": (0.80, 0.2, 1.0), "summary": (0.72, 0.2, 1.0), "math": (0.80, 0.15, 1.0)},
        "modelled: a draft model a tenth of the target's size",
        "draft",
    ),
}


def drafter(name: str, profile: Path | None = None) -> Drafter:
    """The drafter of a preset, with measured acceptance from ``profile`` where given.

    Raises KeyError for an unknown name, ``ProfileError`` for a profile that does not fit.
    """
    method = METHODS[name]
    if profile is not None:
        return Drafter(name, method.depth, profiles.read(profile, method.family, method.depth, method.always))
    kinds = {}
    for kind, (alpha, spread, hits) in method.chances.items():
        usual = Acceptance.of_chance(alpha, method.depth, spread, hits)
        kinds[kind] = usual._replace(drafted=1.0) if method.always else usual
    return Drafter(name, method.depth, kinds)


def plain(name: str, base: Hardware) -> Engine:
    """A server that does not speculate."""
    return Engine(name, base.fixed_seconds, base.token_seconds, base.cache_seconds, cache_tokens=base.cache_tokens)


def speculative(name: str, base: Hardware, method: Drafter, draft_share: float) -> Engine:
    """The same server with a drafter; ``draft_share`` is the cost of one draft token in units of F."""
    return plain(name, base)._replace(drafter=method, draft_seconds=draft_share * base.fixed_seconds)


def capacity(base: Hardware, trace: Sequence[Asked], batch: int = 64) -> float:
    """Requests per second that a plain server serves at a steady batch: the unit in which loads are stated."""
    seconds = 0.0
    for asked in trace:
        cached = asked.input_tokens + asked.output_tokens / 2
        step = base.fixed_seconds / batch + base.token_seconds + base.cache_seconds * cached
        seconds += base.token_seconds * asked.input_tokens + asked.output_tokens * step
    return len(trace) / seconds
