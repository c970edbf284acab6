"""``draftlane estimate``: a roofline answer, without hardware."""

import json
from typing import Annotated, Any

import typer

from policies.roofline import Network, Setting, Weights, together
from policies.roofline_gain import METHODS
from proxy.estimate_words import as_json, preset_tables, show
from proxy.hardware import CHIPS, MODELS, NATIVE_WEIGHTS, WEIGHTS
from proxy.hardware_names import Preset, UnknownNameError, find

ASSUMED_ALPHA = {"draft": 0.70, "eagle": 0.62, "mtp": 0.80, "ngram": 0.30}
"""Acceptance per token where none is given. EAGLE-3 and n-gram: chat at k = 3 in the profiles published with
arXiv 2601.11580 (acceptance length 2.25 and 1.40). MTP: community runs of Qwen3.8-27B. Draft model: a guess."""


def numbers(text: str, what: str, lowest: int) -> list[int]:
    """``1,8,32`` as integers. Raises typer.BadParameter."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{what}: whole numbers with commas between, got {text!r}") from None
    if min(found) < lowest:
        raise typer.BadParameter(f"{what}: nothing below {lowest}, got {min(found)}")
    return found


def pick(table: dict[str, Preset], name: str, option: str) -> Preset:
    """The preset of that name. Raises typer.BadParameter that lists the nearest names."""
    try:
        return find(table, name)
    except UnknownNameError as unknown:
        near = ", ".join(unknown.near) or "see draftlane estimate --list"
        raise typer.BadParameter(f"{option} {name!r} is not known; near it: {near}") from None


def own_figures(preset: Any, **figures: float | None) -> Any:  # a Chip or a Network
    """The preset with the operator's figures in place of ours."""
    given = {field: value for field, value in figures.items() if value is not None}
    return preset._replace(source="own figures over " + preset.name, **given) if given else preset


def stored_as(network: Network, wanted: str | None) -> Weights:
    """The weight format asked for, else the one the model is published in."""
    return pick(WEIGHTS, wanted or NATIVE_WEIGHTS.get(network.name, "bf16"), "--weights")


def estimate(
    gpu: Annotated[str, typer.Option("--gpu", help="A preset, such as H100, RTX 4090, MI300X.")] = "h100",
    model: Annotated[str, typer.Option("--model", help="A preset or its Hugging Face name.")] = "qwen3-32b",
    draft: Annotated[str | None, typer.Option("--draft", help="The draft model; implies --method draft.")] = None,
    method: Annotated[str | None, typer.Option("--method", help="draft, eagle, mtp or ngram.")] = None,
    batch: Annotated[str, typer.Option("--batch", help="Requests in flight.")] = "1,8,32",
    depth: Annotated[int, typer.Option("--depth", "-k", min=0, help="Draft tokens per step; 0: the best.")] = 0,
    acceptance: Annotated[
        float | None, typer.Option("--acceptance", min=0.0, max=1.0, help="Chance that a draft token is accepted.")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="bf16, fp8, int4, nvfp4, q4_k_m …")] = None,
    draft_weights: Annotated[str | None, typer.Option("--draft-weights", help="The same for the drafter.")] = None,
    context: Annotated[int, typer.Option("--context", min=1, help="Tokens in the cache of a request.")] = 1024,
    kv_bytes: Annotated[float, typer.Option("--kv-bytes", min=0.1, help="Bytes per cached number.")] = 2.0,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs that share every layer.")] = 1,
    share: Annotated[
        float, typer.Option("--drafting-share", min=0.01, max=1.0, help="Share of steps with drafts (n-gram).")
    ] = 1.0,
    bandwidth: Annotated[float | None, typer.Option("--bandwidth", min=1, help="Own GB/s.")] = None,
    tflops: Annotated[float | None, typer.Option("--tflops", min=0.1, help="Own dense 16-bit TFLOP/s.")] = None,
    vector_tflops: Annotated[float | None, typer.Option("--vector-tflops", min=0.1, help="Own FP32 TFLOP/s.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", min=0.1, help="Own GB.")] = None,
    parameters: Annotated[float | None, typer.Option("--parameters", min=0.001, help="Own billions.")] = None,
    layers: Annotated[int | None, typer.Option("--layers", min=1, help="Own layer count.")] = None,
    as_machine: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="The presets and where their figures are from.")] = False,
) -> None:
    """Say whether speculation can pay on a GPU, with a model, at a batch size."""
    # long: one line per option
    if listing:
        preset_tables()
        return
    chip = own_figures(
        pick(CHIPS, gpu, "--gpu"),
        bandwidth=scaled(bandwidth, 1e9),
        tensor_flops=scaled(tflops, 1e12),
        vector_flops=scaled(vector_tflops, 1e12),
        memory_bytes=scaled(memory, 1e9),
    )
    network = own_figures(pick(MODELS, model, "--model"), parameters=scaled(parameters, 1e9), layers=layers)
    drafter = pick(MODELS, draft, "--draft") if draft else None
    how = chosen_method(method, drafter)
    stored = stored_as(network, weights)
    drafted = drafter_format(draft_weights, drafter, stored)
    setting = Setting(together(chip, gpus), network, stored, how, drafter, drafted, context, kv_bytes, share)
    alpha = ASSUMED_ALPHA[how] if acceptance is None else acceptance
    report = as_json(setting, numbers(batch, "--batch", 1), depth, alpha, acceptance is None)
    if as_machine:
        typer.echo(json.dumps(report, indent=2))
    else:
        show(setting, report)


def scaled(value: float | None, unit: float) -> float | None:
    """A figure in base units; None stays None."""
    return None if value is None else value * unit


def chosen_method(method: str | None, drafter: Network | None) -> str:
    """The method asked for or implied. Raises typer.BadParameter where they contradict."""
    how = method or ("draft" if drafter else "ngram")
    if how not in METHODS:
        raise typer.BadParameter(f"--method is one of {', '.join(METHODS)}, got {how!r}")
    if (how == "draft") != (drafter is not None):
        raise typer.BadParameter("--method draft needs --draft MODEL, and --draft needs --method draft")
    return how


def drafter_format(wanted: str | None, drafter: Network | None, stored: Weights) -> Weights:
    """How the drafter is stored: asked for, else like the target where that is a whole-file format, else bf16."""
    if wanted:
        return pick(WEIGHTS, wanted, "--draft-weights")
    if stored.unpacked or (drafter is not None and stored.name == "fp8"):
        return stored
    return WEIGHTS["bf16"]
