"""An estimate for readers: tables, two sentences that say why, and the same figures for machines."""

from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from policies.roofline import Setting, experts_hit, free_tokens, stored_bytes
from policies.roofline_gain import Verdict, best_depth, judge
from proxy.hardware import CHIPS, MODELS, WEIGHTS

PAYS, LOSES = 1.05, 0.95
"""Gains between these are less than a roofline can tell apart from nothing."""


CHEAP = 1.1
"""A verification shorter than this many plain steps is called almost free."""


def word(verdict: Verdict) -> str:
    """What the figures say in one word or two."""
    if verdict.gain >= PAYS:
        return "can pay"
    return "no gain" if verdict.gain >= LOSES else "loses"


def as_json(setting: Setting, batches: list[int], depth: int, alpha: float, assumed: bool) -> dict[str, Any]:
    """Everything the estimate found."""
    verdicts = [judge(setting, n, depth, alpha) if depth else best_depth(setting, n, alpha) for n in batches]
    drafter = setting.drafter.name if setting.drafter else setting.method
    return {
        "gpu": setting.chip.name,
        "gpus": setting.chip.devices,
        "model": setting.network.name,
        "weights": setting.weights.name,
        "method": setting.method,
        "drafter": drafter,
        "context_tokens": setting.context,
        "acceptance_per_token": alpha,
        "acceptance_is_assumed": assumed,
        "weights_fit_in_memory": fits(setting),
        "modelled": True,
        "sources": {
            "gpu": setting.chip.source,
            "model": setting.network.source,
            "weights": setting.weights.source,
        },
        "batches": [figures(setting, verdict) for verdict in verdicts],
    }


def fits(setting: Setting) -> bool:
    """The weights of target and draft model leave room in memory."""
    needed = stored_bytes(setting.network, setting.weights)
    if setting.drafter is not None:
        needed += stored_bytes(setting.drafter, setting.drafter_weights or setting.weights)
    return needed < setting.chip.memory_bytes


def figures(setting: Setting, verdict: Verdict) -> dict[str, Any]:
    """One batch size. Times in milliseconds."""
    plain, verify = verdict.plain, verdict.verify
    return {
        "batch": verdict.n,
        "depth": verdict.k,
        "verdict": word(verdict),
        "why": why(setting, verdict),
        "bound": plain.bound,
        "bound_while_verifying": verify.bound,
        "spare_compute": plain.spare_compute,
        "positions_until_compute_bound": free_tokens(setting, verdict.n),
        "plain_step_ms": plain.seconds * 1e3,
        "plain_memory_ms": plain.memory_seconds * 1e3,
        "plain_compute_ms": (plain.tensor_seconds + plain.unpack_seconds) * 1e3,
        "plain_overhead_ms": plain.overhead_seconds * 1e3,
        "verify_ms": verify.seconds * 1e3,
        "draft_ms": verdict.draft_seconds * 1e3,
        "speculative_step_ms": verdict.step_seconds * 1e3,
        "gigabytes_per_plain_step": (plain.weight_bytes + plain.kv_bytes) / 1e9,
        "gigabytes_per_verification": (verify.weight_bytes + verify.kv_bytes) / 1e9,
        "experts_hit_plain": plain.experts_hit,
        "experts_hit_verifying": verify.experts_hit,
        "break_even_length": verdict.break_even_length,
        "break_even_rate": verdict.break_even_rate,
        "break_even_acceptance_per_token": verdict.break_even_alpha,
        "ceiling_of_gain": verdict.ceiling,
        "acceptance_length": verdict.length,
        "gain": verdict.gain,
        "plain_tokens_per_second": verdict.n / plain.seconds,
    }


def why(setting: Setting, verdict: Verdict) -> str:
    """Two sentences: what a step is made of, and what that leaves for speculation."""
    plain, verify, many = verdict.plain, verdict.verify, verdict.n != 1
    requests = f"{verdict.n} request{'s' if many else ''}"
    first = (
        f"A plain step for {requests} on {setting.chip.name} moves {(plain.weight_bytes + plain.kv_bytes) / 1e9:.1f} GB"
        f" in {plain.memory_seconds * 1e3:.1f} ms and leaves {plain.spare_compute:.0%} of the arithmetic idle{link(verdict)} checking"
        f" {verdict.k + 1} positions {dear(verify.seconds / plain.seconds)}{reason(setting, verdict)}."
    )
    return f"{first} {consequence(verdict)}"


def link(verdict: Verdict) -> str:
    """How the second half of the sentence follows from the first."""
    return ", so" if verdict.verify.seconds < CHEAP * verdict.plain.seconds else ", yet"


def dear(times: float) -> str:
    """How much longer the verification is."""
    return "costs almost nothing extra" if times < CHEAP else f"takes {times:.1f} times as long"


def reason(setting: Setting, verdict: Verdict) -> str:
    """What makes the verification longer, where something does."""
    plain, verify, causes = verdict.plain, verdict.verify, []
    if verify.seconds < CHEAP * plain.seconds:
        return ""
    if verify.experts_hit > 1.2 * plain.experts_hit:
        total = setting.network.experts
        causes.append(
            f"it wakes {verify.experts_hit:.0f} of {total} experts per layer instead of {plain.experts_hit:.0f}"
        )
    if verify.unpack_seconds - plain.unpack_seconds > 0.1 * plain.seconds:
        causes.append(f"each position is multiplied with unpacked {setting.weights.name} weights without matrix units")
    if verify.tensor_seconds > verify.memory_seconds:
        causes.append("the arithmetic has become the bottleneck")
    return f" ({' and '.join(causes)})" if causes else ""


def consequence(verdict: Verdict) -> str:
    """What acceptance would have to be, and what is expected."""
    needed = f"a speculative step must yield {verdict.break_even_length:.2f} tokens to break even"
    if verdict.break_even_alpha is None:
        return f"With drafting {needed}, more than the {verdict.k + 1} it can yield: it cannot pay."
    return (
        f"With drafting {needed} (acceptance {verdict.break_even_alpha:.2f} per token); at {verdict.alpha:.2f} it yields"
        f" {verdict.length:.2f}, a gain of {verdict.gain:.2f}×, and {verdict.ceiling:.2f}× if every draft were accepted."
    )


def show(setting: Setting, report: dict[str, Any]) -> None:
    """The page for people."""
    console = Console()
    table = Table(title=title(report), title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in HEADINGS:
        table.add_column(column, justify="right", no_wrap=True)
    table.caption, table.caption_justify = "plain, spec.: ms per step; break-even: tokens per step", "left"
    for row in report["batches"]:
        table.add_row(*cells(row))
    console.print(table)
    if setting.network.experts:
        console.print(experts_line(setting))
    for row in report["batches"]:
        console.print(f"\nbatch {row['batch']}: [bold]{row['verdict']}[/bold]. {row['why']}", highlight=False)
    console.print(f"\n{footer(report)}", highlight=False)


HEADINGS = ("batch", "bound by", "spare", "plain", "k", "spec.", "break-even", "ceiling", "gain", "verdict")


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table. Break-even is in tokens per step."""
    return [
        str(row["batch"]),
        row["bound"],
        f"{row['spare_compute']:.0%}",
        f"{row['plain_step_ms']:.2f}",
        str(row["depth"]),
        f"{row['speculative_step_ms']:.2f}",
        f"{row['break_even_length']:.2f}",
        f"{row['ceiling_of_gain']:.2f}×",
        f"{row['gain']:.2f}×",
        row["verdict"],
    ]


def title(report: dict[str, Any]) -> str:
    """What was asked."""
    gpus = f"{report['gpus']} × " if report["gpus"] > 1 else ""
    return f"{report['model']} ({report['weights']}) on {gpus}{report['gpu']}, drafting by {report['drafter']}"


def experts_line(setting: Setting) -> str:
    """How verification wakes experts at batch 1, by depth."""
    network = setting.network
    counts = ", ".join(
        f"k={k}: {experts_hit(network.experts, network.experts_per_token, k + 1):.0f}" for k in (0, 1, 3, 5, 7)
    )
    return f"experts read per layer at batch 1, of {network.experts} ({counts}; at most: related tokens share some)"


def footer(report: dict[str, Any]) -> str:
    """What the figures rest on."""
    assumed = " (assumed; --acceptance to set it)" if report["acceptance_is_assumed"] else ""
    lines = [
        f"Modelled from datasheets, not measured; acceptance {report['acceptance_per_token']:.2f} per token{assumed}, "
        f"context {report['context_tokens']} tokens. Typical error of the gain: ±10 % (docs/estimate.md).",
        f"Sources: {'; '.join(report['sources'].values())}.",
    ]
    if not report["weights_fit_in_memory"]:
        lines.insert(0, "The weights do not fit into the memory of this many GPUs: the figures are hypothetical.")
    return "\n".join(lines)


def preset_tables() -> None:
    """Every preset with its source."""
    console = Console()
    for heading, presets in (("GPUs", CHIPS), ("Models", MODELS), ("Weights", WEIGHTS)):
        table = Table("name", "figures", "source", title=heading, title_justify="left")
        for name, preset in presets.items():
            table.add_row(name, preset_line(preset), preset.source)
        console.print(table)


def preset_line(preset: Any) -> str:
    """The figures that matter most."""
    match preset:
        case _ if hasattr(preset, "bandwidth"):
            return (
                f"{preset.bandwidth / 1e9:.0f} GB/s, {preset.tensor_flops / 1e12:.0f} TFLOP/s, "
                f"{preset.memory_bytes / 1e9:.0f} GB"
            )
        case _ if hasattr(preset, "parameters"):
            active = f", {preset.active_parameters / 1e9:.1f}B active" if preset.experts else ""
            return f"{preset.parameters / 1e9:.1f}B{active}, {preset.layers} layers"
    return f"{preset.bytes_per_weight:.2f} bytes per weight"
