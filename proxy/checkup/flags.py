"""Flags that older articles tell and engines no longer know (vLLM 0.32, llama.cpp of autumn 2026, SGLang 0.5)."""

import re
from collections.abc import Iterator

from proxy.checkup.finding import Finding, fault, fine, unchecked

NAME = "flags"
OUTDATED: dict[str, str] = {
    "--speculative-model": """--speculative-config '{"method":"draft_model","model":"…","num_speculative_tokens":5}'""",
    "--num-speculative-tokens": """"num_speculative_tokens" inside --speculative-config""",
    "--ngram-prompt-lookup-max": """"prompt_lookup_max" inside --speculative-config '{"method":"ngram",…}'""",
    "--ngram-prompt-lookup-min": """"prompt_lookup_min" inside --speculative-config '{"method":"ngram",…}'""",
    "--speculative-draft-tensor-parallel-size": """"draft_tensor_parallel_size" inside --speculative-config""",
    "--speculative-disable-by-batch-size": """"num_speculative_tokens_per_batch_size" inside --speculative-config""",
    "--speculative-max-model-len": """"max_model_len" inside --speculative-config""",
    "--spec-decoding-acceptance-method": "nothing: rejection sampling is the only method",
    "--use-v2-block-manager": "nothing: it is how vLLM works",
    "--draft-max": "--spec-draft-n-max (draft model) or --spec-ngram-mod-n-max",
    "--draft": "--spec-draft-n-max",
    "--draft-n": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min (draft model) or --spec-ngram-mod-n-min",
    "--draft-n-min": "--spec-draft-n-min",
    "--spec-ngram-size-n": "--spec-ngram-mod-n-match, or --spec-ngram-simple-size-n",
    "--spec-ngram-size-m": "--spec-ngram-mod-n-max, or --spec-ngram-simple-size-m",
    "--spec-ngram-min-hits": "--spec-ngram-simple-min-hits",
}
_LLAMA_TYPES = {
    "ngram": "ngram-mod or ngram-simple",
    "draft": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
}


def flags(line: str | None) -> Iterator[Finding]:
    """The command line an engine is started with."""
    if line is None:
        yield unchecked(NAME, "no command line given", 'pass it as --flags "…"')
        return
    words = re.findall(r"(?<!\S)-{1,2}[A-Za-z][\w.-]*", line)
    found = [word for word in dict.fromkeys(words) if _known_as(word) in OUTDATED]
    for word in found:
        yield fault(NAME, f"{word} no longer exists", f"use {OUTDATED[_known_as(word)]}")
    kind = re.search(r"--spec-type[= ](\S+)", line)
    if kind and kind.group(1) in _LLAMA_TYPES:
        yield fault(
            NAME, f"--spec-type {kind.group(1)} does not exist", f"use --spec-type {_LLAMA_TYPES[kind.group(1)]}"
        )
    elif not found:
        yield fine(NAME, f"{len(words)} flags, none of them known to be out of date")


def _known_as(word: str) -> str:
    return word.replace("_", "-")
