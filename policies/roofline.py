"""Can speculation pay on this chip, with this model, at this batch? Arithmetic on datasheet figures.

Theory of operation
-------------------
A decode step of a transformer reads every active weight once and the key/value cache of every
sequence once, and does 2 FLOPs per active weight and token (S. Williams et al., *Roofline*, CACM
52(4), 2009). At batch 1 the arithmetic units wait for the memory, so checking ``k`` drafted tokens
beside the next one moves almost the same bytes: the check is nearly free and every accepted draft is
a step saved. Three things spoil the bargain:

- *the crowd*: with many sequences the arithmetic takes as long as the memory, and every drafted
  token is paid in full;
- *sparse experts*: a mixture of experts reads only what its router wakes. ``t`` tokens that choose
  ``a`` of ``E`` experts each wake ``E·(1 − (1 − a/E)^t)`` (independent choices; Huang et al.,
  *MoESD*, arXiv 2505.19645). Checking 4 positions at batch 1 with 8 of 128 wakes 29 experts, not 8:
  the bytes are not the same at all. Tokens of one text do share experts, so this is an upper bound;
- *kernels without tensor cores*: llama.cpp multiplies quantised weights by up to 8 tokens on the
  ordinary arithmetic units after unpacking them. That work is not hidden behind the memory, it is
  added, once per token. It is why 4-bit weights on a consumer card leave so little to gain.

So the step time here is

    seconds = max(bytes / usable bandwidth, FLOPs / usable tensor rate) + FLOPs / vector rate* + overhead

with the starred term only for those kernels. The shares of the datasheet figures that are usable and
the overheads are the five numbers of ``Calibration``; docs/estimate.md compares what comes out with
published measurements and says which of them the numbers were fitted to.

A roofline knows nothing of scheduling, sampling cost, tokenizer or network. It answers "can it
pay at all, and what must acceptance be", not "what will my P99 be": that is what ``bench`` is for.
"""

from typing import NamedTuple


class Chip(NamedTuple):
    """Datasheet figures of one accelerator. Dense rates, never those "with sparsity"."""

    name: str
    bandwidth: float
    """Bytes per second of device memory."""
    tensor_flops: float
    """FLOP/s of the matrix units with 16-bit input and 32-bit accumulation."""
    vector_flops: float
    """FP32 FLOP/s of the ordinary arithmetic units."""
    memory_bytes: float
    narrow_rate: float = 1.0
    """How much faster 8-bit matrix arithmetic is; 1 where there is none."""
    source: str = ""
    devices: int = 1
    """Chips that share every layer (tensor parallel); the figures above are then their sum."""


class Weights(NamedTuple):
    """How weights are stored and which kernels multiply them."""

    name: str
    bytes_per_weight: float
    head_bytes: float
    """Bytes per weight of the output head, which most formats leave wider."""
    dense_bytes: float
    """Bytes per weight outside the routed experts (differs in gpt-oss's own format)."""
    narrow: bool = False
    """Multiplied in 8 bits where the chip can."""
    unpacked: bool = False
    """Multiplied by llama.cpp's small-batch kernels on the ordinary arithmetic units."""
    source: str = ""


class Network(NamedTuple):
    """What the arithmetic needs of a model card."""

    name: str
    parameters: float
    layers: int
    hidden: int
    vocabulary: int
    attention_width: int
    """Query heads × head size: the width of the attention product."""
    kv_values: int
    """Numbers cached per token and full-attention layer (2 × KV heads × head size; the latent of MLA)."""
    full_layers: int
    """Layers whose attention sees the whole context."""
    window_layers: int = 0
    window: int = 0
    """Tokens a windowed layer sees."""
    experts: int = 0
    experts_per_token: int = 0
    expert_parameters: float = 0.0
    """Parameters in routed experts, all layers together."""
    tied: bool = False
    """The output head is the embedding table."""
    source: str = ""

    @property
    def head_parameters(self) -> float:
        """Weights of the output head."""
        return float(self.vocabulary * self.hidden)

    @property
    def lookup_parameters(self) -> float:
        """Embedding rows are looked up, not multiplied: not read as a whole, unless the head shares them."""
        return 0.0 if self.tied else self.head_parameters

    @property
    def active_parameters(self) -> float:
        """Weights one token is multiplied with."""
        idle = 1.0 - self.experts_per_token / self.experts if self.experts else 0.0
        return self.parameters - self.lookup_parameters - idle * self.expert_parameters


class Calibration(NamedTuple):
    """How much of a datasheet is real. Fitted once, see docs/estimate.md."""

    bandwidth_share: float = 0.85
    tensor_share: float = 0.60
    vector_share: float = 0.25
    layer_seconds: float = 20e-6
    """Launches and small kernels of one layer, not hidden behind anything."""
    routed_layer_seconds: float = 30e-6
    """What routing, sorting and gathering add in a layer with experts."""
    pass_seconds: float = 400e-6
    """Sampling, scheduling and the host, once per forward pass."""
    reduce_seconds: float = 20e-6
    """Two all-reduces per layer, where several chips share it."""
    lookup_seconds: float = 100e-6
    """An n-gram drafter's search, once per step."""


CALIBRATION = Calibration()
UNPACKED_TOKENS = 8
"""Beyond this many tokens llama.cpp changes to matrix-unit kernels (``MMVQ_MAX_BATCH_SIZE`` in ggml-cuda)."""


class Pass(NamedTuple):
    """One forward pass, taken apart. Seconds and bytes."""

    seconds: float
    memory_seconds: float
    tensor_seconds: float
    unpack_seconds: float
    overhead_seconds: float
    weight_bytes: float
    kv_bytes: float
    flops: float
    experts_hit: float

    @property
    def bound(self) -> str:
        """``bandwidth``, ``compute`` or ``overhead``: which part of the pass is longest."""
        parts = {
            "bandwidth": self.memory_seconds,
            "compute": max(self.tensor_seconds, self.unpack_seconds),
            "overhead": self.overhead_seconds,
        }
        return max(parts, key=lambda part: parts[part])

    @property
    def spare_compute(self) -> float:
        """Share of the pass in which the arithmetic units have nothing to do, 0 … 1."""
        return max(0.0, 1.0 - (self.tensor_seconds + self.unpack_seconds) / self.seconds)


class Setting(NamedTuple):
    """Everything that stays the same while batch and depth vary."""

    chip: Chip
    network: Network
    weights: Weights
    method: str
    drafter: Network | None = None
    drafter_weights: Weights | None = None
    context: int = 1024
    """Tokens in the cache of each sequence."""
    kv_bytes: float = 2.0
    """Bytes per cached number."""
    share: float = 1.0
    """Share of the steps that carry drafts: below 1 for n-gram methods, which draft only on a match."""
    calibration: Calibration = CALIBRATION


def together(chip: Chip, devices: int) -> Chip:
    """Several equal chips that share every layer. Raises ValueError for fewer than one."""
    if devices < 1:
        raise ValueError("at least one device")
    return chip._replace(
        bandwidth=chip.bandwidth * devices,
        tensor_flops=chip.tensor_flops * devices,
        vector_flops=chip.vector_flops * devices,
        memory_bytes=chip.memory_bytes * devices,
        devices=devices,
    )


def experts_hit(experts: int, per_token: int, tokens: float) -> float:
    """Expected number of distinct experts that ``tokens`` independent choices wake in one layer.

    ``E·(1 − (1 − a/E)^t)``; arXiv 2505.19645, eq. for the expected activation.
    """
    if not experts:
        return 0.0
    return float(experts * (1.0 - (1.0 - per_token / experts) ** tokens))


def weight_bytes(network: Network, weights: Weights, tokens: float) -> float:
    """Bytes of weights one pass over ``tokens`` tokens reads."""
    body = network.parameters - network.lookup_parameters - network.head_parameters - network.expert_parameters
    read = body * weights.dense_bytes + network.head_parameters * weights.head_bytes
    if network.experts:
        share = experts_hit(network.experts, network.experts_per_token, tokens) / network.experts
        read += share * network.expert_parameters * weights.bytes_per_weight
    return read


def stored_bytes(network: Network, weights: Weights) -> float:
    """Bytes the weights occupy in memory."""
    body = network.parameters - network.lookup_parameters - network.head_parameters - network.expert_parameters
    wide = (network.head_parameters + network.lookup_parameters) * weights.head_bytes
    return body * weights.dense_bytes + wide + network.expert_parameters * weights.bytes_per_weight


def cached_tokens(network: Network, context: int) -> float:
    """Token-layers of cache that one sequence reads per pass: full layers see all, windowed ones their window."""
    return float(network.full_layers * context + network.window_layers * min(context, network.window))


def kv_bytes(network: Network, context: int, bytes_per_value: float) -> float:
    """Bytes of key/value cache one sequence reads per pass, however many of its tokens are checked in it."""
    return cached_tokens(network, context) * network.kv_values * bytes_per_value


def flops(network: Network, tokens: float, context: int) -> float:
    """FLOPs of a pass: 2 per active weight and token, 4 per attended position and unit of attention width."""
    attention = 4.0 * network.attention_width * cached_tokens(network, context)
    return tokens * (2.0 * network.active_parameters + attention)


def layer_seconds(used: Calibration, network: Network, devices: int) -> float:
    """What a layer costs beside bytes and arithmetic."""
    routed = used.routed_layer_seconds if network.experts else 0.0
    shared = used.reduce_seconds if devices > 1 else 0.0
    return used.layer_seconds + routed + shared


def forward(setting: Setting, network: Network, weights: Weights, n: int, each: int) -> Pass:
    """The pass that advances ``n`` sequences by ``each`` positions."""
    chip, used, tokens = setting.chip, setting.calibration, n * each
    read, cache = weight_bytes(network, weights, tokens), n * kv_bytes(network, setting.context, setting.kv_bytes)
    work = flops(network, tokens, setting.context)
    memory = (read + cache) / (chip.bandwidth * used.bandwidth_share)
    rate = chip.narrow_rate if weights.narrow else 1.0
    tensor = work / (chip.tensor_flops * rate * used.tensor_share)
    unpack = 0.0
    if weights.unpacked:
        once = 2.0 * network.active_parameters
        unpack = once * min(tokens, UNPACKED_TOKENS) / (chip.vector_flops * used.vector_share)
    overhead = used.pass_seconds + network.layers * layer_seconds(used, network, chip.devices)
    hit = experts_hit(network.experts, network.experts_per_token, tokens)
    seconds = max(memory, tensor) + unpack + overhead
    return Pass(seconds, memory, tensor, unpack, overhead, read, cache, work, hit)


def free_tokens(setting: Setting, n: int) -> float:
    """Positions per sequence one could check before arithmetic takes longer than the memory does.

    Dense models only mean it literally; with experts the bytes grow too (``Pass.experts_hit``).
    """
    plain = forward(setting, setting.network, setting.weights, n, 1)
    return plain.memory_seconds / (plain.tensor_seconds + plain.unpack_seconds)
