"""The simulated engine's pages: metrics, models, and what engines tell of themselves."""

from typing import Any

from proxy.simulated.batch import Batch
from proxy.simulated.character import Character

VERSIONS = {"vllm": "0.32.0", "llamacpp": "b0"}


def metrics(batch: Batch) -> str:
    """The Prometheus page of the dialect, with a line that says what this is."""
    body = _vllm(batch) if batch.character.dialect == "vllm" else _llamacpp(batch)
    return "# simulated: these figures are made up by draftlane engine\n" + body


def _lines(samples: list[tuple[str, str, str, float]]) -> str:
    seen: set[str] = set()
    out = []
    for kind, name, labels, value in samples:
        if name not in seen:
            seen.add(name)
            out += [f"# HELP {name} Simulated.", f"# TYPE {name} {kind}"]
        out.append(f"{name}{labels} {float(value)}")
    return "\n".join(out) + "\n"


def _vllm(batch: Batch) -> str:
    character, counters = batch.character, batch.counters
    model = character.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    own = f'engine="0",model_name="{model}"'
    labels = f"{{{own}}}"
    samples = [
        ("gauge", "vllm:num_requests_running", labels, len(batch.running)),
        ("gauge", "vllm:num_requests_waiting", labels, len(batch.waiting)),
        ("gauge", "vllm:kv_cache_usage_perc", labels, _held(batch)),
        ("counter", "vllm:prompt_tokens_total", labels, counters.prompt),
        ("counter", "vllm:prompt_tokens_cached_total", labels, counters.cached),
        ("counter", "vllm:generation_tokens_total", labels, counters.generated),
    ]
    for reason in ("stop", "length", "abort"):
        ended = counters.finished.get(reason, 0)
        samples.append(("counter", "vllm:request_success_total", f'{{finished_reason="{reason}",{own}}}', ended))
    if character.depth:
        samples += [
            ("counter", "vllm:spec_decode_num_drafts_total", labels, counters.drafts),
            ("counter", "vllm:spec_decode_num_draft_tokens_total", labels, counters.draft_tokens),
            ("counter", "vllm:spec_decode_num_accepted_tokens_total", labels, sum(counters.accepted)),
        ]
        accepted = counters.accepted + [0] * (character.depth - len(counters.accepted))
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        samples += [("counter", name, f'{{{own},position="{at}"}}', value) for at, value in enumerate(accepted)]
    return _lines(samples)


def _llamacpp(batch: Batch) -> str:
    counters = batch.counters
    samples: list[tuple[str, str, str, float]] = [
        ("counter", "llamacpp:prompt_tokens_total", "", counters.prompt - counters.cached),
        ("counter", "llamacpp:tokens_predicted_total", "", counters.generated),
        ("counter", "llamacpp:spec_decode_num_draft_tokens_total", "", counters.draft_tokens),
        ("counter", "llamacpp:spec_decode_num_accepted_tokens_total", "", sum(counters.accepted)),
        ("counter", "llamacpp:spec_decode_num_drafts_total", "", counters.drafts),
        ("gauge", "llamacpp:requests_processing", "", len(batch.running)),
        ("gauge", "llamacpp:requests_deferred", "", len(batch.waiting)),
    ]
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    samples += [("counter", name, f'{{position="{at}"}}', value) for at, value in enumerate(counters.accepted) if value]
    return _lines(samples)


def _held(batch: Batch) -> float:
    return min(batch.tokens_held() / (batch.character.context_tokens * batch.character.max_requests), 1.0)


def models(character: Character, created: int) -> dict[str, Any]:
    """``/v1/models``; ``owned_by`` says what this is."""
    card: dict[str, Any] = {
        "id": character.model,
        "object": "model",
        "created": created,
        "owned_by": "draftlane-simulated",
    }
    if character.dialect == "vllm":
        card |= {"root": character.model, "parent": None, "max_model_len": character.context_tokens}
    else:
        card |= {"aliases": [character.model], "meta": {"n_ctx": character.context_tokens}}
    return {"object": "list", "data": [card]}


def version(character: Character) -> dict[str, Any]:
    """``/version``."""
    return {"version": f"{VERSIONS[character.dialect]}+simulated", "simulated": True}


def server_info(character: Character) -> dict[str, Any]:
    """vLLM's ``/server_info?config_format=json``, as far as anyone reads it."""
    drafting = {
        "method": character.method if character.method == "ngram" else "draft_model",
        "num_speculative_tokens": character.depth,
    }
    config = {
        "model_config": {"model": character.model, "max_model_len": character.context_tokens},
        "scheduler_config": {"max_num_seqs": character.max_requests},
        "speculative_config": drafting if character.depth else None,
    }
    return {"vllm_config": config, "simulated": True}


def props(character: Character) -> dict[str, Any]:
    """llama.cpp's ``/props``; as in the original it does not tell whether it speculates."""
    settings = {"params": {"speculative.types": "none"}, "n_ctx": character.context_tokens}
    return {
        "default_generation_settings": settings,
        "total_slots": character.max_requests,
        "model_alias": character.model,
        "build_info": version(character)["version"],
        "simulated": True,
    }


def slots(character: Character, busy: int) -> list[dict[str, Any]]:
    """llama.cpp's ``/slots``, which does tell."""
    one = {"n_ctx": character.context_tokens, "speculative": bool(character.depth)}
    return [{"id": slot, **one, "is_processing": slot < busy} for slot in range(character.max_requests)]
