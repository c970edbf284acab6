"""Traps that can be seen before the first measured request: in the prompts, the request, and the arms."""

from collections.abc import Iterable, Mapping, Sequence

import httpx

from proxy.discovery import get, root
from proxy.engines.base import Discovered
from proxy.engines.habits import field
from proxy.proof.arm import Arm, Sample
from proxy.proof.diversity import Diversity, measure, pieces
from proxy.proof.findings import TRAPS, Finding, found
from proxy.proof.prompts import Prompt

SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "dynatemp_range"),
    *("repeat_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "mirostat"),
)
WEIGHTS = ("n_vocab", "n_params", "size", "n_embd", "ftype")
"""Facts of llama.cpp's model card that twins share."""
FIRST_PIECES = 3


def prompt_findings(prompts: Sequence[Prompt]) -> tuple[Diversity, list[Finding]]:
    """Is every prompt a different text? Raises ValueError for an empty set."""
    seen = measure([prompt.text for prompt in prompts])
    checks = (
        ("repeated-prompts", seen.duplicates, "of the prompts were there before."),
        ("near-duplicate-prompts", seen.near_duplicates, "of the prompts have the words of an earlier one."),
        ("shared-text", seen.containment, "of a prompt's 8-word runs stand in earlier prompts, on average."),
        ("padded-prompts", seen.self_repetition, "of a prompt's 8-word runs repeat the prompt itself, on average."),
        (
            "some-padded-prompts",
            seen.self_repeating,
            "of the prompts repeat themselves in more than 30 % of their text.",
        ),
    )
    walked_into = [found(name, f"{share:.0%} {said}", share) for name, share, said in checks if share > limit(name)]
    names = {finding.name for finding in walked_into}
    return seen, [f for f in walked_into if f.name != "some-padded-prompts" or "padded-prompts" not in names]


def limit(name: str) -> float:
    """The figure from which a trap counts."""
    return TRAPS[name].limit or 0.0


def body_findings(body: Mapping[str, object]) -> list[Finding]:
    """Request fields that make answers go on past their end."""
    forced = [key for key in ("ignore_eos", "min_tokens") if body.get(key)]
    return [found("ignore-eos", f"The requests carry {' and '.join(forced)}.")] if forced else []


def arm_findings(plain: Discovered, speculative: Discovered) -> list[Finding]:
    """Do the arms serve the same, and does only one of them speculate?"""
    findings = [*_speculation(plain, speculative), *_weights(plain, speculative)]
    contexts = plain.max_context_tokens, speculative.max_context_tokens
    if None not in contexts and contexts[0] != contexts[1]:
        findings.append(found("different-contexts", f"{contexts[0]} tokens on plain, {contexts[1]} on speculative."))
    return findings


def _speculation(plain: Discovered, speculative: Discovered) -> Iterable[Finding]:
    if speculative.speculative is False:
        yield found("not-speculating", f"The {speculative.engine} engine says that speculation is off.")
    if plain.speculative:
        yield found("plain-speculates", f"The {plain.engine} engine says that it speculates.")


def _weights(plain: Discovered, speculative: Discovered) -> Iterable[Finding]:
    one, other = (field(arm.cards[0], "meta") if arm.cards else None for arm in (plain, speculative))
    unlike = [f"{key} {a} and {b}" for key in WEIGHTS if (a := field(one, key)) != (b := field(other, key))]
    if one is not None and other is not None and unlike:
        yield found("different-models", f"The model cards differ: {', '.join(unlike)}.")
    elif plain.models and speculative.models and not set(plain.models) & set(speculative.models):
        yield found("different-names", f"{plain.models[0]} on plain, {speculative.models[0]} on speculative.")


async def settings_findings(http: httpx.AsyncClient, plain: Arm, speculative: Arm) -> list[Finding]:
    """Compare what the engines tell of their configuration: llama.cpp's ``/props``, vLLM's ``/server_info``."""
    findings: list[Finding] = []
    for path, compare in (("/props", sampling_findings), ("/server_info?config_format=json", configuration_findings)):
        pages = [(await get(http, root(arm.url) + path, arm.headers, 10.0)).json() for arm in (plain, speculative)]
        if None not in pages:
            findings += compare(pages[0], pages[1], plain.body)
    return findings


def sampling_findings(plain: object, speculative: object, body: Mapping[str, object]) -> list[Finding]:
    """llama.cpp's sampling defaults, as far as requests do not set them."""
    params = [field(page, "default_generation_settings", "params") for page in (plain, speculative)]
    unlike = [
        f"{key} {a} and {b}"
        for key in SAMPLING
        if key not in body and (a := field(params[0], key)) != (b := field(params[1], key))
    ]
    return [found("different-sampling", f"Defaults differ: {', '.join(unlike)}.")] if unlike else []


def configuration_findings(plain: object, speculative: object, body: Mapping[str, object]) -> list[Finding]:
    """vLLM's model, tokenizer and generation configuration."""
    findings = []
    for name, keys in (
        ("different-models", ("model", "revision", "quantization", "dtype")),
        ("different-tokenizers", ("tokenizer", "tokenizer_revision")),
        ("different-sampling", ("generation_config", "override_generation_config")),
    ):
        paths = [("vllm_config", "model_config", key) for key in keys]
        pairs = [(path[-1], field(plain, *path), field(speculative, *path)) for path in paths]
        if unlike := [f"{key} {a} and {b}" for key, a, b in pairs if a != b]:
            findings.append(found(name, f"The engines' configurations differ: {', '.join(unlike)}."))
    return findings


def greedy_findings(plain: Sequence[Sample], speculative: Sequence[Sample]) -> list[Finding]:
    """Do both arms begin their answers alike at temperature 0? Samples in the same order of prompts."""
    begun = [
        pieces(one.text)[:FIRST_PIECES] == pieces(other.text)[:FIRST_PIECES]
        for one, other in zip(plain, speculative, strict=True)
        if one.ok and other.ok
    ]
    if not begun or (share := sum(begun) / len(begun)) >= limit("different-answers"):
        return []
    return [found("different-answers", f"{sum(begun)} of {len(begun)} answers begin with the same words.", share)]
