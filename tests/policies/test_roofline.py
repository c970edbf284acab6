"""The arithmetic of the roofline: hand-computed cases, monotone laws, and published measurements with the error stated."""

from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.roofline import Setting, experts_hit, flops, forward, free_tokens, kv_bytes, together, weight_bytes
from policies.roofline_gain import acceptance_length, alpha_for, best_depth, judge
from proxy.hardware import CHIPS, MODELS, WEIGHTS

DOCS = Path(__file__).parents[2] / "docs" / "estimate.md"


def setting(chip: str, model: str, weights: str, method: str = "ngram", draft: str | None = None) -> Setting:
    drafter = MODELS[draft] if draft else None
    return Setting(CHIPS[chip], MODELS[model], WEIGHTS[weights], method, drafter, WEIGHTS[weights], 512)


class Published(NamedTuple):
    """A measurement somebody published, batch 1. ``length`` is the acceptance length they reported."""

    label: str
    chip: str
    model: str
    weights: str
    source: str
    plain_tokens_per_second: float
    method: str = "ngram"
    draft: str | None = None
    depth: int = 0
    length: float = 0.0
    gain: float = 0.0
    fitted: bool = False


MTP_TABLE = "sudoingX/qwen38-mtp"
PUBLISHED = (
    Published("SGLang, H100", "h100", "llama-3.1-8b", "bf16", "SGLang docs", 158.3, fitted=True),
    Published("vLLM V1, EAGLE k=2", "h100", "llama-3.1-8b", "bf16", "vllm #16035", 128.6, "mtp", None, 2, 1.89, 1.364),
    Published("vLLM V1, EAGLE k=4", "h100", "llama-3.1-8b", "bf16", "vllm #16035", 128.6, "mtp", None, 4, 2.08, 1.288),
    Published("vLLM V0, plain", "h100", "llama-3.3-70b", "fp8", "olof.tech", 30),
    Published(
        "llama.cpp, 1B draft k=5",
        "rtx-3060",
        "llama-3.1-8b",
        "q8_0",
        "llama.cpp #5877",
        32.5,
        "draft",
        "llama-3.2-1b",
        5,
        4.58,
        1.707,
    ),
    Published("MTP k=2", "rtx-3090", "qwen3.8-27b", "q4_k_m", f"{MTP_TABLE} #21", 41.3, "mtp", None, 2, 2.56, 1.538),
    Published(
        "MTP k=2 (3090 Ti)", "rtx-3090", "qwen3.8-27b", "q4_k_m", f"{MTP_TABLE} #14", 42, "mtp", None, 2, 2.57, 1.45
    ),
    Published(
        "MTP k=4, 250 W",
        "rtx-3090",
        "qwen3.8-27b",
        "q4_k_m",
        f"{MTP_TABLE} #42",
        31.9,
        "mtp",
        None,
        4,
        3.59,
        1.655,
        True,
    ),
    Published("MTP k=2, 275 W", "rtx-4090", "qwen3.8-27b", "q4_k_m", MTP_TABLE, 47.7, "mtp", None, 2, 2.12, 1.6),
    Published("MTP k=2, Q6", "rtx-5090", "qwen3.8-27b", "q6_k", f"{MTP_TABLE} #14", 61.9, "mtp", None, 2, 2.59, 2.1),
    Published("MTP k=3", "rtx-5090", "qwen3.8-27b", "q4_k_m", MTP_TABLE, 62.7, "mtp", None, 3, 3.16, 1.734),
    Published("MTP k=4", "rtx-5090", "qwen3.8-27b", "q4_k_m", MTP_TABLE, 69.3, "mtp", None, 4, 3.2, 1.863),
    Published("MTP k=4", "rtx-5090", "qwen3.8-27b", "q4_k_m", f"{MTP_TABLE} #43", 74.5, "mtp", None, 4, 3.76, 2.27),
    Published(
        "vLLM, MTP k=2", "rtx-pro-6000", "qwen3.8-27b", "nvfp4", f"{MTP_TABLE} #11", 63.3, "mtp", None, 2, 2.18, 1.518
    ),
    Published(
        "vLLM, MTP k=4", "rtx-pro-6000", "qwen3.8-27b", "nvfp4", f"{MTP_TABLE} #11", 63.3, "mtp", None, 4, 2.68, 1.837
    ),
    Published("2 cards, layer split", "rtx-5060-ti", "qwen3-32b", "q4_k_m", "dev.to/defilan", 20),
    Published("2 cards, layer split", "rtx-5060-ti", "gemma-4-26b-a4b", "q4_k_m", "dev.to/defilan", 88),
    Published("Ollama", "rtx-4090", "qwen3-30b-a3b", "q4_k_m", "runaihome.com", 196, fitted=True),
    Published("llama.cpp, plain", "rtx-5090", "qwen3.6-35b-a3b", "q4_k_m", f"{MTP_TABLE} #30", 270),
    Published("llama.cpp, plain", "rtx-3090", "gemma-4-26b-a4b", "q4_k_m", "calebcoffie.com", 101),
    Published("llama.cpp, plain", "rtx-3090", "gemma-3-4b", "q4_k_m", "calebcoffie.com", 189),
    Published(
        "3B draft k=16",
        "m4-pro",
        "qwen2.5-32b",
        "q4_k_m",
        "llama.cpp #10455",
        11,
        "draft",
        "llama-3.2-3b",
        16,
        6.4,
        0.98,
    ),
)


def predicted(row: Published) -> tuple[float, float | None]:
    """Tokens per second without speculation, and the gain at the published acceptance length."""
    case = setting(row.chip, row.model, row.weights, row.method, row.draft)
    plain = 1 / forward(case, case.network, case.weights, 1, 1).seconds
    return plain, row.length / judge(case, 1, row.depth, 0.5).break_even_length if row.depth else None


def rendered(row: Published) -> str:
    """The line of docs/estimate.md."""
    plain, gain = predicted(row)
    speed = f"{row.plain_tokens_per_second:g} | {plain:.1f} | {plain / row.plain_tokens_per_second - 1:+.0%}"
    gains = "| | " if gain is None else f"{row.gain:.2f} | {gain:.2f} | {gain / row.gain - 1:+.0%}"
    mark = " (fitted)" if row.fitted else ""
    return f"| {row.label} | {row.chip} | {row.model} {row.weights} | {speed} | {gains} | {row.source}{mark} |"


def test_the_documented_comparison_is_what_the_formulas_say_today() -> None:
    page = DOCS.read_text(encoding="utf-8").splitlines()
    assert [line for line in map(rendered, PUBLISHED) if line not in page] == []


def test_the_gain_is_typically_right_within_ten_percent_on_rows_it_was_not_fitted_to() -> None:
    errors = []
    for row in PUBLISHED:
        gain = predicted(row)[1]
        if gain is not None and not row.fitted:
            errors.append(abs(gain / row.gain - 1))
    assert len(errors) >= 10
    assert median(errors) <= 0.10
    assert sorted(errors)[-2] <= 0.20, "all but one within 20 %"


def test_plain_speed_is_typically_right_within_fifteen_percent() -> None:
    errors = [abs(predicted(row)[0] / row.plain_tokens_per_second - 1) for row in PUBLISHED if not row.fitted]
    assert median(errors) <= 0.15


def test_the_break_even_rates_of_the_routing_theory_come_out_again() -> None:
    # Fitted on one H100 running an 8B model, EAGLE-3, k = 3: 0.10 at batch 1 and 0.33 at batch 512.
    case = setting("h100", "llama-3.1-8b", "bf16", "eagle")._replace(context=1024)
    assert judge(case, 1, 3, 0.6).break_even_rate == pytest.approx(0.10, abs=0.03)
    assert judge(case, 512, 3, 0.6).break_even_rate == pytest.approx(0.33, abs=0.10)


def test_weights_of_a_dense_model_are_read_once_without_the_embedding_rows() -> None:
    llama = MODELS["llama-3.1-8b"]
    assert weight_bytes(llama, WEIGHTS["bf16"], 1) == pytest.approx((8.03e9 - 128256 * 4096) * 2)
    assert weight_bytes(llama, WEIGHTS["bf16"], 64) == weight_bytes(llama, WEIGHTS["bf16"], 1)


def test_the_cache_of_windowed_layers_stops_growing() -> None:
    gemma = MODELS["gemma-3-27b"]
    full, windowed = 10 * 4096 * 4096 * 2, 52 * 1024 * 4096 * 2
    assert kv_bytes(gemma, 4096, 2) == full + windowed
    assert kv_bytes(MODELS["llama-3.1-8b"], 1000, 2) == 131_072_000


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("qwen3-30b-a3b", 3.3),
        ("qwen3-235b-a22b", 22),
        ("mixtral-8x7b", 12.9),
        ("gpt-oss-20b", 3.6),
        ("gpt-oss-120b", 5.1),
        ("deepseek-v3", 37),
        ("gemma-4-26b-a4b", 3.8),
    ],
)
def test_active_parameters_agree_with_the_model_cards(model: str, billions: float) -> None:
    # Cards differ on whether embedding rows count; ours leaves them out where the head is separate.
    network = MODELS[model]
    assert network.active_parameters / 1e9 == pytest.approx(billions, rel=0.16)


def test_checking_four_positions_wakes_29_of_128_experts_not_8() -> None:
    assert experts_hit(128, 8, 1) == pytest.approx(8)
    assert experts_hit(128, 8, 4) == pytest.approx(29.1, abs=0.1)
    assert experts_hit(0, 0, 4) == 0


@given(st.integers(2, 256), st.integers(1, 8), st.integers(1, 200))
def test_more_tokens_wake_more_experts_but_never_more_than_there_are(total: int, chosen: int, tokens: int) -> None:
    chosen = min(chosen, total)
    fewer, more = experts_hit(total, chosen, tokens), experts_hit(total, chosen, tokens + 1)
    assert chosen - 1e-9 <= fewer <= more <= total + 1e-9


@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(sorted(CHIPS)),
    st.sampled_from(sorted(WEIGHTS)),
    st.integers(1, 64),
)
def test_a_bigger_batch_never_makes_a_step_shorter(model: str, chip: str, weights: str, n: int) -> None:
    case = setting(chip, model, weights)
    small = forward(case, case.network, case.weights, n, 1)
    large = forward(case, case.network, case.weights, n + 1, 1)
    assert 0 < small.seconds <= large.seconds
    assert 0 <= large.spare_compute <= 1
    assert flops(case.network, n + 1, 512) > flops(case.network, n, 512)


@given(
    st.sampled_from(sorted(MODELS)), st.sampled_from(("ngram", "eagle", "mtp")), st.integers(1, 128), st.integers(1, 12)
)
def test_break_even_and_ceiling_frame_every_gain(model: str, method: str, n: int, k: int) -> None:
    verdict = judge(setting("h100", model, "bf16", method), n, k, 0.7)
    assert verdict.break_even_length >= 1
    assert verdict.gain <= verdict.ceiling + 1e-9
    assert (verdict.gain >= 1) == (verdict.length >= verdict.break_even_length)
    if verdict.break_even_alpha is None:
        assert verdict.ceiling < 1
    else:
        assert acceptance_length(verdict.break_even_alpha, k) == pytest.approx(verdict.break_even_length, rel=1e-6)


@given(st.floats(0.01, 0.999), st.integers(1, 16))
def test_acceptance_length_and_its_inverse_agree(alpha: float, k: int) -> None:
    found = alpha_for(acceptance_length(alpha, k), k)
    assert found is not None
    assert found == pytest.approx(alpha, abs=1e-6)


def test_nothing_accepts_more_than_everything() -> None:
    assert alpha_for(4.01, 3) is None
    assert alpha_for(1.0, 3) == pytest.approx(0.0, abs=1e-9)


def test_the_best_depth_grows_with_acceptance_and_shrinks_with_the_crowd() -> None:
    case = setting("h100", "qwen3-32b", "bf16", "draft", "qwen3-0.6b")
    depths = [best_depth(case, 1, alpha).k for alpha in (0.4, 0.6, 0.8, 0.9)]
    assert depths == sorted(depths)
    assert len(set(depths)) > 2
    assert best_depth(case, 256, 0.7).k < best_depth(case, 1, 0.7).k


def test_an_h100_at_batch_1_gains_and_a_5060_ti_with_a_4_bit_mixture_of_experts_does_not() -> None:
    h100 = best_depth(setting("h100", "qwen3-32b", "bf16", "draft", "qwen3-0.6b"), 1, 0.7)
    home = best_depth(setting("rtx-5060-ti", "gemma-4-26b-a4b", "q4_k_m"), 1, 0.3)
    assert h100.gain > 2
    assert h100.verify.seconds < 1.05 * h100.plain.seconds
    assert home.gain < 1.05
    assert home.verify.experts_hit > 1.9 * home.plain.experts_hit


def test_a_drafter_that_rarely_finds_a_match_neither_gains_nor_loses_much() -> None:
    case = setting("rtx-5060-ti", "gemma-4-26b-a4b", "q4_k_m")
    always, rarely = judge(case, 1, 4, 0.3), judge(case._replace(share=0.05), 1, 4, 0.3)
    assert always.gain < 0.8
    assert rarely.gain == pytest.approx(1.0, abs=0.08)


def test_two_chips_share_the_bytes_but_pay_for_talking() -> None:
    one = setting("h100", "llama-3.3-70b", "fp8")
    two = one._replace(chip=together(one.chip, 2))
    single, double = (forward(case, case.network, case.weights, 1, 1) for case in (one, two))
    assert double.memory_seconds == pytest.approx(single.memory_seconds / 2)
    assert double.seconds > single.seconds / 2


def test_impossible_questions_are_refused() -> None:
    case = setting("h100", "qwen3-32b", "bf16")
    with pytest.raises(ValueError, match="start at 1"):
        judge(case, 0, 3, 0.5)
    with pytest.raises(ValueError, match="start at 1"):
        judge(case, 1, 0, 0.5)
    with pytest.raises(ValueError, match="one device"):
        together(case.chip, 0)


def test_a_crowd_turns_a_step_from_bandwidth_bound_to_compute_bound() -> None:
    case = setting("l4", "llama-3.1-8b", "bf16")
    assert forward(case, case.network, case.weights, 1, 1).bound == "bandwidth"
    assert forward(case, case.network, case.weights, 512, 4).bound == "compute"
    assert free_tokens(case, 1) > 100 > free_tokens(case, 512)
