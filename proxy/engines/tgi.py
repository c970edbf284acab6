"""Text Generation Inference (read from source; archived, still deployed).

``tgi_request_skipped_tokens`` is observed once per step with the tokens gained in it, so its count is the number of
steps and its sum the accepted tokens; on a plain backend it is observed too, always with 0.
"""

from proxy.engines.base import Pages, Scrape, Told
from proxy.engines.exposition import Names
from proxy.engines.habits import Habits, field, text, whole


def _tell(pages: Pages, scrape: Scrape | None) -> Told:
    info = pages.get("/info")
    return Told(
        speculative=True if scrape and scrape.accepted_tokens else None,
        max_requests=whole(field(info, "max_batch_size")),
        max_context_tokens=whole(field(info, "max_total_tokens")),
        version=text(field(info, "version")),
    )


TGI = Habits(
    name="tgi",
    names=Names(
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        drafts=("tgi_request_skipped_tokens_count",),
        accepted_tokens=("tgi_request_skipped_tokens_sum",),
        generated_tokens=("tgi_request_generated_tokens_sum",),
    ),
    takes_usage=True,
    one_event_per_step=False,
    prefix="tgi_",
    asks=("/info",),
    telling=_tell,
)
