"""SGLang (read from source: 0.5). Acceptance comes as gauges, of counters only the verification calls."""

from proxy.engines.base import Pages, Scrape, Told
from proxy.engines.exposition import Names
from proxy.engines.habits import Habits, field, text, whole

_SERVER_INFOS = ("/server_info", "/get_server_info")
"""The second is the older name of the first."""


def _depth(info: object) -> int | None:
    # num_draft_tokens counts the root, which is the bonus token of the step before.
    steps, drafted = whole(field(info, "speculative_num_steps")), whole(field(info, "speculative_num_draft_tokens"))
    return steps or (drafted - 1 if drafted and drafted > 1 else None)


def _max_requests(info: object) -> int | None:
    ranks = field(info, "internal_states")
    limits = (
        [whole(field(rank, "effective_max_running_requests_per_dp")) for rank in ranks]
        if isinstance(ranks, list)
        else []
    )
    return sum(limit for limit in limits if limit) or whole(field(info, "max_running_requests"))


def _tell(pages: Pages, scrape: Scrape | None) -> Told:
    info = next((page for path in _SERVER_INFOS if isinstance(page := pages.get(path), dict)), None)
    if info is None:
        return Told(speculative=True if scrape and scrape.acceptance_length else None)
    method = text(info.get("speculative_algorithm"))
    return Told(
        speculative=method is not None,
        depth=_depth(info) if method else None,
        method=method,
        max_requests=_max_requests(info),
        max_context_tokens=whole(info.get("context_length")),
        version=text(info.get("version")),
    )


SGLANG = Habits(
    name="sglang",
    names=Names(
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        cache_usage=("sglang:token_usage",),
        drafts=("sglang:spec_verify_calls_total",),
        generated_tokens=("sglang:generation_tokens_total",),
        acceptance_length=("sglang:spec_accept_length",),
    ),
    takes_usage=True,
    refuses=("grammar", "json_schema", "logit_bias", "min_p"),
    one_event_per_step=True,
    prefix="sglang:",
    owners=("sglang",),
    asks=_SERVER_INFOS,
    telling=_tell,
)
"""Mis-served while it speculates, from its open reports: ``min_p`` and ``logit_bias`` are not applied to every token
(sgl-project/sglang#10617); grammar-constrained answers get stuck or crash the engine (#9187, #20148)."""
