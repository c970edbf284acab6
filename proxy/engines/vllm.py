"""vLLM (recorded: 0.32). Speculation counters exist only where speculation is configured."""

from proxy.engines.base import Pages, Scrape, Told
from proxy.engines.exposition import Names
from proxy.engines.habits import Habits, field, text, whole

_SERVER_INFO = "/server_info?config_format=json"


def _tell(pages: Pages, scrape: Scrape | None) -> Told:
    config = field(pages.get(_SERVER_INFO), "vllm_config")  # development mode only
    told = Told(
        max_requests=whole(field(config, "scheduler_config", "max_num_seqs")),
        max_context_tokens=whole(field(config, "model_config", "max_model_len")),
        version=text(field(pages.get("/version"), "version")),
    )
    if isinstance(config, dict) and "speculative_config" in config:
        drafting = config["speculative_config"]
        return told._replace(
            speculative=drafting is not None,
            depth=whole(field(drafting, "num_speculative_tokens")),
            method=text(field(drafting, "method")),
        )
    if scrape is None:
        return told
    # All positions are there from the start, so their number is k.
    return told._replace(speculative=scrape.drafts is not None, depth=len(scrape.accepted_per_position) or None)


VLLM = Habits(
    name="vllm",
    names=Names(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        cache_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        drafts=("vllm:spec_decode_num_drafts_total",),
        draft_tokens=("vllm:spec_decode_num_draft_tokens_total",),
        accepted_tokens=("vllm:spec_decode_num_accepted_tokens_total",),
        per_position=("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
        generated_tokens=("vllm:generation_tokens_total",),
    ),
    takes_usage=True,
    refuses=("logit_bias", "min_p"),
    one_event_per_step=True,
    prefix="vllm:",
    owners=("vllm",),
    asks=(_SERVER_INFO, "/version"),
    telling=_tell,
)
"""Refusals recorded: 400 to ``min_p`` > 0 and to a non-empty ``logit_bias`` while it speculates."""
