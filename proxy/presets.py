"""Hardware and drafters that ``draftlane simulate`` knows by name. All of it modelled, none of it a GPU run of ours.

Hardware: a roofline from data-sheet numbers. One step reads the weights once (memory-bound, ``_READ`` of the
sheet's bandwidth is reached), each token costs two floating-point operations per parameter (``_COMPUTE`` of the
sheet's dense BF16 figure), each cached token is read once per step (``_GATHER`` of the bandwidth: paged and
scattered). The three shares are the middle of what inference engines are reported to reach; measure your own
servers and pass ``--hardware`` numbers where it matters.

Drafters: chance per token and share of steps with drafts per kind of content. Modelled after the ranges that
the EAGLE-3 and prompt-lookup literature reports at depth 3; parameters chosen by us, no data set is copied.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from policies.simulation_server import Engine
from policies.simulation_workload import Acceptance, Asked, Drafter
from proxy import profiles

_READ, _COMPUTE, _GATHER = 0.80, 0.50, 0.60
_LAUNCH_SECONDS = 0.0005
_MEMORY_SHARE = 0.90
"""Of the device's memory an engine takes (vLLM's gpu_memory_utilization)."""
_ACTIVATION_BYTES = 3e9


class Sheet(NamedTuple):
    """Data-sheet numbers of a device (or several as one) and of a model."""

    bandwidth: float
    """Bytes per second."""
    flops: float
    """Dense BF16 operations per second."""
    memory: float
    """Bytes."""
    parameters: float
    weight_bytes: float
    cache_bytes: float
    """KV bytes per token."""
    origin: str


_LLAMA_8B = (8.03e9, 16.06e9, 2 * 32 * 8 * 128 * 2)
_QWEN3_32B = (32.8e9, 65.5e9, 2 * 64 * 8 * 128 * 2)

SHEETS: dict[str, Sheet] = {
    "h100-8b": Sheet(3.35e12, 989e12, 80e9, *_LLAMA_8B, "NVIDIA H100 SXM data sheet; Llama 3.1 8B, BF16"),
    "a100-8b": Sheet(2.04e12, 312e12, 80e9, *_LLAMA_8B, "NVIDIA A100 80 GB SXM data sheet; Llama 3.1 8B, BF16"),
    "l40s-8b": Sheet(0.864e12, 362e12, 48e9, *_LLAMA_8B, "NVIDIA L40S data sheet; Llama 3.1 8B, BF16"),
    "h100x2-32b": Sheet(6.7e12, 1979e12, 160e9, *_QWEN3_32B, "two NVIDIA H100 SXM, ideal tensor parallel; Qwen3 32B, BF16"),
}


class Hardware(NamedTuple):
    """Step-time parameters of a plain server."""

    fixed_seconds: float
    token_seconds: float
    cache_seconds: float
    cache_tokens: int
    origin: str


def hardware(name: str) -> Hardware:
    """The roofline of a sheet. Raises KeyError for an unknown name."""
    sheet = SHEETS[name]
    room = sheet.memory * _MEMORY_SHARE - sheet.weight_bytes - _ACTIVATION_BYTES
    return Hardware(
        fixed_seconds=sheet.weight_bytes / (sheet.bandwidth * _READ) + _LAUNCH_SECONDS,
        token_seconds=2.0 * sheet.parameters / (sheet.flops * _COMPUTE),
        cache_seconds=sheet.cache_bytes / (sheet.bandwidth * _GATHER),
        cache_tokens=int(room / sheet.cache_bytes),
        origin=sheet.origin,
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
