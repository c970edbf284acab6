"""TensorRT-LLM's ``trtllm-serve`` (read from source). ``/metrics`` is JSON there; the Prometheus page is elsewhere."""

from proxy.engines.base import Pages, Scrape, Told
from proxy.engines.exposition import Names
from proxy.engines.habits import Habits, field, text


def _tell(pages: Pages, scrape: Scrape | None) -> Told:
    # Its counters appear with the first draft, so their absence says nothing.
    drafted = bool(scrape and (scrape.draft_tokens or scrape.acceptance_length))
    return Told(
        speculative=True if drafted else None,
        depth=len(scrape.accepted_per_position) or None if scrape else None,
        version=text(field(pages.get("/version"), "version")),
    )


TRTLLM = Habits(
    name="trtllm",
    names=Names(
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        cache_usage=("trtllm_kv_cache_utilization",),
        draft_tokens=("trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_drafted_tokens_total"),
        accepted_tokens=("trtllm_spec_decode_num_accepted_tokens_total", "trtllm_spec_decode_accepted_tokens_total"),
        per_position=("trtllm_spec_decode_accepted_tokens_total", "trtllm_spec_decode_num_accepted_tokens_total"),
        generated_tokens=("trtllm_generation_tokens_total",),
        acceptance_length=("trtllm_spec_decode_acceptance_length",),
        position_label="token_position",
    ),
    takes_usage=True,
    one_event_per_step=True,
    metrics_path="/prometheus/metrics",
    prefix="trtllm_",
    owners=("tensorrt_llm",),
    asks=("/version",),
    telling=_tell,
)
"""The per-position counters are named without ``num``; older pages hang ``token_position`` on the totals."""
