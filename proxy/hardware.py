"""Accelerators, weight formats and models as data: the figures of datasheets and model cards, each with its source.

Rates are dense and per device. GeForce cards halve the matrix rate when they accumulate in 32 bits,
as language models do; the halved figure is the one that counts. Apple publishes bandwidth but no
FLOPS; those rows are computed from cores × clock and say so.
"""

from policies.roofline import Chip, Network, Weights

_GB, _TERA = 1e9, 1e12


def _chip(
    name: str, gb_s: float, tensor: float, vector: float, gb: float, source: str, narrow: float = 1.0
) -> tuple[str, Chip]:
    return name, Chip(name, gb_s * _GB, tensor * _TERA, vector * _TERA, gb * _GB, narrow, source)


_AMPERE = "NVIDIA Ampere GA102 whitepaper, appendix A (same ratios for GA106)"
_ADA = "NVIDIA Ada GPU architecture whitepaper, appendix A"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix A"
_APPLE = "Apple technical specifications (bandwidth); FLOPS computed from GPU cores and clock, not published"

CHIPS: dict[str, Chip] = dict(
    (
        _chip("rtx-3060", 360, 25.5, 12.7, 12, _AMPERE),
        _chip("rtx-3090", 936, 71, 35.6, 24, _AMPERE),
        _chip("rtx-4060-ti", 288, 44.1, 22.1, 16, _ADA, 2.0),
        _chip("rtx-4090", 1008, 165.2, 82.6, 24, _ADA, 2.0),
        _chip("rtx-5060-ti", 448, 47.4, 23.7, 16, _BLACKWELL, 2.0),
        _chip("rtx-5090", 1792, 209.5, 104.8, 32, _BLACKWELL, 2.0),
        _chip("rtx-pro-6000", 1792, 500, 125, 96, "NVIDIA RTX PRO 6000 Blackwell datasheet (4,000 AI TOPS ÷ 8)", 2.0),
        _chip("a10", 600, 125, 31.2, 24, "NVIDIA A10 datasheet"),
        _chip("l4", 300, 121, 30.3, 24, "NVIDIA L4 datasheet", 2.0),
        _chip("l40s", 864, 362, 91.6, 48, "NVIDIA L40S datasheet", 2.0),
        _chip("a100-40", 1555, 312, 19.5, 40, "NVIDIA A100 datasheet"),
        _chip("a100-80", 2039, 312, 19.5, 80, "NVIDIA A100 datasheet, SXM"),
        _chip("h100", 3350, 989, 67, 80, "NVIDIA H100 datasheet, SXM", 2.0),
        _chip("h100-pcie", 2000, 756, 51, 80, "NVIDIA H100 datasheet, PCIe", 2.0),
        _chip("h200", 4800, 989, 67, 141, "NVIDIA H200 datasheet, SXM", 2.0),
        _chip("b200", 8000, 2250, 75, 180, "NVIDIA Blackwell datasheet, B200 SXM", 2.0),
        _chip("mi300x", 5300, 1307, 163.4, 192, "AMD Instinct MI300X datasheet", 2.0),
        _chip("trainium2", 2900, 667, 181, 96, "AWS Neuron documentation, Trainium2", 2.0),
        _chip("m4-pro", 273, 9.2, 9.2, 64, _APPLE),
        _chip("m4-max", 546, 18.4, 18.4, 128, _APPLE),
        _chip("m3-ultra", 819, 28.3, 28.3, 512, _APPLE),
    )
)


def _weights(
    name: str,
    body: float,
    head: float,
    source: str,
    *,
    dense: float | None = None,
    narrow: bool = False,
    unpacked: bool = False,
) -> tuple[str, Weights]:
    return name, Weights(name, body, head, body if dense is None else dense, narrow, unpacked, source)


_GGUF = "llama.cpp, bits per weight of tools/quantize; the head is kept in q6_k"

WEIGHTS: dict[str, Weights] = dict(
    (
        _weights("bf16", 2.0, 2.0, "two bytes"),
        _weights("fp8", 1.0, 2.0, "one byte, head in bf16 (compressed-tensors default)", narrow=True),
        _weights("int4", 0.53, 2.0, "AWQ/GPTQ, groups of 128: 4.25 bits, head in bf16"),
        _weights("nvfp4", 0.5625, 2.0, "4 bits and an 8-bit scale per 16 weights, head in bf16", narrow=True),
        _weights("mxfp4", 0.53125, 2.0, "4 bits and an 8-bit scale per 32 weights, experts only", dense=2.0),
        _weights("q8_0", 1.0625, 1.0625, _GGUF, unpacked=True),
        _weights("q6_k", 0.82, 0.82, _GGUF, unpacked=True),
        _weights("q5_k_m", 0.71, 0.82, _GGUF, unpacked=True),
        _weights("q4_k_m", 0.606, 0.82, _GGUF, unpacked=True),
    )
)


def _model(
    name: str,
    billions: float,
    layers: int,
    hidden: int,
    vocabulary: int,
    heads: tuple[int, int, int],
    source: str,
    *,
    full: int | None = None,
    window: int = 0,
    experts: tuple[int, int, float] = (0, 0, 0.0),
    tied: bool = False,
) -> tuple[str, Network]:
    """One row: ``heads`` is (query heads, KV heads, head size); ``experts`` is (number, per token, billions in them)."""
    query, kv, size = heads
    whole = layers if full is None else full
    return name, Network(
        name,
        billions * 1e9,
        layers,
        hidden,
        vocabulary,
        query * size,
        2 * kv * size,
        whole,
        layers - whole if window else 0,
        window,
        experts[0],
        experts[1],
        experts[2] * 1e9,
        tied,
        source,
    )


_CARD = "config.json and model card of "

MODELS: dict[str, Network] = dict(
    (
        _model("llama-3.2-1b", 1.236, 16, 2048, 128256, (32, 8, 64), _CARD + "meta-llama/Llama-3.2-1B", tied=True),
        _model("llama-3.2-3b", 3.213, 28, 3072, 128256, (24, 8, 128), _CARD + "meta-llama/Llama-3.2-3B", tied=True),
        _model("llama-3.1-8b", 8.030, 32, 4096, 128256, (32, 8, 128), _CARD + "meta-llama/Llama-3.1-8B"),
        _model("llama-3.3-70b", 70.55, 80, 8192, 128256, (64, 8, 128), _CARD + "meta-llama/Llama-3.3-70B-Instruct"),
        _model("llama-3.1-405b", 405.9, 126, 16384, 128256, (128, 8, 128), _CARD + "meta-llama/Llama-3.1-405B"),
        _model("qwen2.5-0.5b", 0.494, 24, 896, 151936, (14, 2, 64), _CARD + "Qwen/Qwen2.5-0.5B", tied=True),
        _model("qwen2.5-1.5b", 1.544, 28, 1536, 151936, (12, 2, 128), _CARD + "Qwen/Qwen2.5-1.5B", tied=True),
        _model("qwen2.5-7b", 7.616, 28, 3584, 152064, (28, 4, 128), _CARD + "Qwen/Qwen2.5-7B"),
        _model("qwen2.5-14b", 14.77, 48, 5120, 152064, (40, 8, 128), _CARD + "Qwen/Qwen2.5-14B"),
        _model("qwen2.5-32b", 32.76, 64, 5120, 152064, (40, 8, 128), _CARD + "Qwen/Qwen2.5-32B"),
        _model("qwen2.5-72b", 72.71, 80, 8192, 152064, (64, 8, 128), _CARD + "Qwen/Qwen2.5-72B"),
        _model("qwen3-0.6b", 0.596, 28, 1024, 151936, (16, 8, 128), _CARD + "Qwen/Qwen3-0.6B", tied=True),
        _model("qwen3-1.7b", 1.721, 28, 2048, 151936, (16, 8, 128), _CARD + "Qwen/Qwen3-1.7B", tied=True),
        _model("qwen3-4b", 4.022, 36, 2560, 151936, (32, 8, 128), _CARD + "Qwen/Qwen3-4B", tied=True),
        _model("qwen3-8b", 8.191, 36, 4096, 151936, (32, 8, 128), _CARD + "Qwen/Qwen3-8B"),
        _model("qwen3-14b", 14.77, 40, 5120, 151936, (40, 8, 128), _CARD + "Qwen/Qwen3-14B"),
        _model("qwen3-32b", 32.76, 64, 5120, 151936, (64, 8, 128), _CARD + "Qwen/Qwen3-32B"),
        _model(
            "qwen3-30b-a3b",
            30.53,
            48,
            2048,
            151936,
            (32, 4, 128),
            _CARD + "Qwen/Qwen3-30B-A3B",
            experts=(128, 8, 28.99),
        ),
        _model(
            "qwen3-235b-a22b",
            235.1,
            94,
            4096,
            151936,
            (64, 4, 128),
            _CARD + "Qwen/Qwen3-235B-A22B",
            experts=(128, 8, 227.1),
        ),
        _model("qwen3.8-27b", 26.9, 64, 5120, 248320, (24, 4, 256), _CARD + "Qwen/Qwen3.8-27B (text part)", full=16),
        _model(
            "qwen3.6-35b-a3b",
            34.7,
            40,
            2048,
            248320,
            (16, 2, 256),
            _CARD + "Qwen/Qwen3.6-35B-A3B (text part)",
            full=10,
            experts=(256, 8, 32.21),
        ),
        _model(
            "gemma-3-270m",
            0.268,
            18,
            640,
            262144,
            (4, 1, 256),
            _CARD + "google/gemma-3-270m",
            full=3,
            window=512,
            tied=True,
        ),
        _model(
            "gemma-3-1b", 1.0, 26, 1152, 262144, (4, 1, 256), _CARD + "google/gemma-3-1b", full=4, window=512, tied=True
        ),
        _model(
            "gemma-3-4b",
            3.88,
            34,
            2560,
            262208,
            (8, 4, 256),
            _CARD + "google/gemma-3-4b (text part)",
            full=5,
            window=1024,
            tied=True,
        ),
        _model(
            "gemma-3-12b",
            11.77,
            48,
            3840,
            262208,
            (16, 8, 256),
            _CARD + "google/gemma-3-12b (text part)",
            full=8,
            window=1024,
            tied=True,
        ),
        _model(
            "gemma-3-27b",
            27.01,
            62,
            5376,
            262208,
            (32, 16, 128),
            _CARD + "google/gemma-3-27b (text part)",
            full=10,
            window=1024,
            tied=True,
        ),
        _model(
            "gemma-4-26b-a4b",
            25.2,
            30,
            2816,
            262144,
            (16, 8, 256),
            _CARD + "google/gemma-4-26B-A4B",
            full=5,
            window=1024,
            experts=(128, 8, 22.84),
            tied=True,
        ),
        _model("mistral-7b", 7.248, 32, 4096, 32768, (32, 8, 128), _CARD + "mistralai/Mistral-7B-v0.3"),
        _model("mistral-small-24b", 23.57, 40, 5120, 131072, (32, 8, 128), _CARD + "mistralai/Mistral-Small-24B"),
        _model(
            "mixtral-8x7b",
            46.70,
            32,
            4096,
            32000,
            (32, 8, 128),
            _CARD + "mistralai/Mixtral-8x7B",
            experts=(8, 2, 45.10),
        ),
        _model(
            "mixtral-8x22b",
            140.6,
            56,
            6144,
            32768,
            (48, 8, 128),
            _CARD + "mistralai/Mixtral-8x22B",
            experts=(8, 2, 135.3),
        ),
        _model(
            "gpt-oss-20b",
            20.91,
            24,
            2880,
            201088,
            (64, 8, 64),
            _CARD + "openai/gpt-oss-20b",
            full=12,
            window=128,
            experts=(32, 4, 19.11),
        ),
        _model(
            "gpt-oss-120b",
            116.8,
            36,
            2880,
            201088,
            (64, 8, 64),
            _CARD + "openai/gpt-oss-120b",
            full=18,
            window=128,
            experts=(128, 4, 114.7),
        ),
        _model(
            "deepseek-v3",
            671.0,
            61,
            7168,
            129280,
            (128, 1, 288),
            _CARD + "deepseek-ai/DeepSeek-V3 (MLA: 576 cached numbers per layer, written as one head of 288)",
            experts=(256, 8, 653.9),
        ),
    )
)

NATIVE_WEIGHTS = {"gpt-oss-20b": "mxfp4", "gpt-oss-120b": "mxfp4", "deepseek-v3": "fp8"}
"""Models published in something else than bf16."""
