"""What to paste: the flag of an engine for a depth, and patches that carry it."""

import json

WITH_MODEL = ("draft_model", "eagle", "eagle3", "medusa", "mlp_speculator")
"""Methods of vLLM whose configuration names the drafter's weights."""
KNOWN = ("vllm", "llamacpp", "sglang")


def flags(engine: str, depth: int, method: str | None = None) -> list[str]:
    """The engine's flags for a depth; empty for engines that are not known.

    vLLM wants its whole configuration in one flag: what stands there beside the depth (the draft model,
    ``prompt_lookup_max``) has to be kept. SGLang's tree with ``--speculative-eagle-topk 1`` is a chain of
    num_steps drafts, verified together with the last accepted token.
    """
    if engine == "vllm":
        config: dict[str, object] = {"method": method or "YOUR-METHOD", "num_speculative_tokens": depth}
        if method in WITH_MODEL:
            config["model"] = "YOUR-DRAFT-MODEL"
        return ["--speculative-config", json.dumps(config)]
    if engine == "llamacpp":
        return [llamacpp_flag(method), str(depth)]
    if engine == "sglang":
        chain = ["--speculative-num-steps", str(depth), "--speculative-eagle-topk", "1"]
        return [*chain, "--speculative-num-draft-tokens", str(depth + 1)]
    return []


def llamacpp_flag(method: str | None) -> str:
    """llama.cpp names the depth by the drafter, as in ``--spec-type``."""
    drafter = (method or "").lower().replace("_", "-")
    if drafter == "ngram-mod":
        return "--spec-ngram-mod-n-max"
    return f"--spec-{drafter}-size-m" if drafter.startswith("ngram-") else "--spec-draft-n-max"


def shell(words: list[str]) -> str:
    """Flags as typed in a shell."""
    return " ".join(f"'{word}'" if set(word) & set('{}" ') else word for word in words)


def kubernetes_patch(words: list[str], name: str = "YOUR-DEPLOYMENT") -> str:
    """A ``kubectl patch`` that appends the flags to the first container's arguments."""
    operations = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": word} for word in words]
    return f"kubectl patch deployment {name} --type json -p '{json.dumps(operations)}'"


def llmkube_patch(engine: str, words: list[str], depth: int, name: str = "YOUR-SERVICE") -> str:
    """A ``kubectl patch`` of an LLMKube InferenceService.

    Its ``speculativeDecoding`` block drives llama.cpp only and knows the depth of draft models; anything else goes
    through ``extraArgs``, a list that a merge patch replaces as a whole.
    """
    if engine == "llamacpp" and words[:1] == ["--spec-draft-n-max"]:
        spec: dict[str, object] = {"speculativeDecoding": {"nDraftMax": depth}}
    else:
        spec = {"extraArgs": words}
    return (
        f"kubectl patch inferenceservices.inference.llmkube.dev {name} --type merge -p '{json.dumps({'spec': spec})}'"
    )


def instructions(engine: str, depth: int, method: str | None = None) -> list[tuple[str, str]]:
    """(what it is for, text to paste). With an unknown engine, one line for each that is known."""
    if engine not in KNOWN:
        return [(known, shell(flags(known, depth, method))) for known in KNOWN]
    words = flags(engine, depth, method)
    return [
        (engine, shell(words)),
        ("Kubernetes", kubernetes_patch(words)),
        ("LLMKube", llmkube_patch(engine, words, depth)),
    ]
