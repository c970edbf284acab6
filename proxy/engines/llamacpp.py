"""llama.cpp's server. Its counters are always there, 0 when off, and move only when a request ends."""

from proxy.engines.base import Pages, Scrape, Told
from proxy.engines.exposition import Names
from proxy.engines.habits import Habits, field, text, whole


def _tell(pages: Pages, scrape: Scrape | None) -> Told:
    props, slots = pages.get("/props"), pages.get("/slots")
    told = Told(
        max_requests=whole(field(props, "total_slots")),
        max_context_tokens=whole(field(props, "default_generation_settings", "n_ctx")),
        version=text(field(props, "build_info")),
    )
    if isinstance(slots, list) and slots:
        # /props says "speculative.types": "none" even while it drafts; the slots tell the truth.
        return told._replace(
            speculative=any(field(slot, "speculative") is True for slot in slots),
            max_requests=len(slots),
            max_context_tokens=whole(field(slots, 0, "n_ctx")) or told.max_context_tokens,
        )
    return told._replace(speculative=True if scrape and scrape.drafts else None)


LLAMACPP = Habits(
    name="llamacpp",
    names=Names(
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        cache_usage=("llamacpp:kv_cache_usage_ratio",),
        drafts=("llamacpp:spec_decode_num_drafts_total",),
        draft_tokens=("llamacpp:spec_decode_num_draft_tokens_total",),
        accepted_tokens=("llamacpp:spec_decode_num_accepted_tokens_total",),
        per_position=("llamacpp:spec_decode_num_accepted_tokens_per_pos_total",),
        generated_tokens=("llamacpp:tokens_predicted_total",),
    ),
    takes_usage=False,
    one_event_per_step=False,
    prefix="llamacpp:",
    owners=("llamacpp",),
    asks=("/props", "/slots"),
    telling=_tell,
)
