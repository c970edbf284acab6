"""Every metric there is: one row each. ``docs/metrics.md`` shows the same table, and a test keeps them equal.

Base units, and only labels whose values are bounded: configured names, or words of our own. Names that clients make up
(applications without a key, unknown models) end up as ``other`` beyond a limit.
"""

from typing import NamedTuple

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"


class Row(NamedTuple):
    """One metric family."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""
    merge: str = "sum"
    """How several workers' figures become one: ``sum``, ``max``, or ``first`` for what all of them learn together."""


# The boundaries that OpenTelemetry's GenAI conventions recommend, with finer ones below (speculation makes tokens in
# 2 ms) and coarser ones above (100k-token prompts take minutes to their first token).
TTFT_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)  # fmt: skip
TPOT_SECONDS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)  # fmt: skip
LATENCY_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36)  # fmt: skip
TOKENS = tuple(float(4**power) for power in range(14))
OWN_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
PREDICTED_TO_REAL = (0.0625, 0.125, 0.25, 0.5, 0.71, 0.84, 1.0, 1.19, 1.41, 2.0, 4.0, 8.0, 16.0)

_LANE = ("lane", "class")
_CLASS = ("model", "app", "content", "temperature")
_GEN_AI = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")

METRICS: tuple[Row, ...] = (
    # What passed by
    Row("draftlane_requests_total", COUNTER, "Requests that ended", ("surface", *_LANE, "outcome", "status")),
    Row("draftlane_requests_in_progress", GAUGE, "Requests that have not ended", ("surface",)),
    Row("draftlane_app_requests_total", COUNTER, "Requests that ended, by application", ("app", "lane")),
    Row("draftlane_app_tokens_total", COUNTER, "Tokens as the engines counted them: input (cached ones included), cached, output", ("app", "kind")),
    Row("draftlane_decisions_total", COUNTER, "Requests by where they went and why", ("backend", *_LANE, "reason")),
    Row("draftlane_rejections_total", COUNTER, "Requests that the gateway itself turned away", ("cause",)),
    Row("draftlane_faults_total", COUNTER, "What backends did wrong, retried requests included", ("backend", "fault")),
    Row("draftlane_retries_total", COUNTER, "Attempts that followed a failed one", ("surface",)),
    Row("draftlane_requeues_total", COUNTER, "Requests taken from a stalled backend", ("surface",)),
    Row("draftlane_time_to_first_token_seconds", HISTOGRAM, "First byte of a request to its first generated token", _LANE, TTFT_SECONDS),
    Row("draftlane_time_per_output_token_seconds", HISTOGRAM, "Seconds per output token after the first", _LANE, TPOT_SECONDS),
    Row("draftlane_request_duration_seconds", HISTOGRAM, "First byte of a request to the last of its answer", _LANE, LATENCY_SECONDS),
    Row("draftlane_own_seconds", HISTOGRAM, "What the gateway itself added before a request went out", (), OWN_SECONDS),
    Row("draftlane_predicted_to_real_output", HISTOGRAM, "Predicted output tokens ÷ real ones", ("class",), PREDICTED_TO_REAL),
    Row("draftlane_predictions_total", COUNTER, "Predictions of output length that could be checked, by the predictor level that answered", ("source", "within_2x")),
    # The same in the words of OpenTelemetry's GenAI conventions
    Row("gen_ai_server_request_duration_seconds", HISTOGRAM, "Request duration", (*_GEN_AI, "error_type"), LATENCY_SECONDS),
    Row("gen_ai_server_time_to_first_token_seconds", HISTOGRAM, "Time to the first token of successful answers", _GEN_AI, TTFT_SECONDS),
    Row("gen_ai_server_time_per_output_token_seconds", HISTOGRAM, "Time per output token after the first, of successful answers", _GEN_AI, TPOT_SECONDS),
    Row("gen_ai_client_token_usage", HISTOGRAM, "Input and output tokens per request", (*_GEN_AI, "gen_ai_token_type"), TOKENS),
    # What is known of the backends
    Row("draftlane_backend_info", GAUGE, "Always 1; says what a backend is", ("backend", "lane", "engine"), merge="max"),
    Row("draftlane_backend_in_flight", GAUGE, "Requests of this replica on a backend", ("backend", "lane")),
    Row("draftlane_backend_peer_in_flight", GAUGE, "Requests of other replicas on a backend", ("backend", "lane"), merge="first"),
    Row("draftlane_backend_running", GAUGE, "Requests that the engine says it runs", ("backend",), merge="first"),
    Row("draftlane_backend_waiting", GAUGE, "Requests that the engine says it queues", ("backend",), merge="first"),
    Row("draftlane_backend_cache_usage_ratio", GAUGE, "Share of the engine's KV cache in use", ("backend",), merge="first"),
    Row("draftlane_backend_scrape_age_seconds", GAUGE, "Age of what the engine's metrics page told", ("backend",), merge="max"),
    Row("draftlane_backend_state", GAUGE, "1 for the state a backend is in: serving, cold, busy, stalled, half-open, open or draining", ("backend", "state"), merge="max"),
    Row("draftlane_backend_step_seconds", GAUGE, "Learnt time of an engine step without company", ("backend",), merge="first"),
    Row("draftlane_backend_step_seconds_per_request", GAUGE, "Learnt time that each further request adds to a step", ("backend",), merge="first"),
    Row("draftlane_backend_prefill_seconds_per_token", GAUGE, "Learnt time to read one prompt token", ("backend",), merge="first"),
    Row("draftlane_backend_completions", GAUGE, "Finished requests that the learnt figures rest on", ("backend",), merge="first"),
    # What is known of speculation
    Row("draftlane_acceptance_ratio", GAUGE, "Accepted draft tokens ÷ draft tokens", ("backend",), merge="first"),
    Row("draftlane_acceptance_tokens_per_step", GAUGE, "Tokens per engine step (acceptance length), bonus token included", ("backend",), merge="first"),
    Row("draftlane_acceptance_requests", GAUGE, "Requests that the acceptance figures rest on", ("backend",), merge="first"),
    Row("draftlane_acceptance_draft_tokens", GAUGE, "Draft tokens that the acceptance ratio rests on, older ones counting less", ("backend",), merge="first"),
    Row("draftlane_class_acceptance_ratio", GAUGE, "Accepted draft tokens ÷ draft tokens, by class", ("backend", *_CLASS), merge="first"),
    Row("draftlane_class_acceptance_tokens_per_step", GAUGE, "Tokens per engine step, by class", ("backend", *_CLASS), merge="first"),
    Row("draftlane_class_acceptance_requests", GAUGE, "Requests that the figures by class rest on", ("backend", *_CLASS), merge="first"),
    Row("draftlane_break_even_ratio", GAUGE, "Output ÷ input above which speculation pays now; 1e6 when at no output length", ("model",), merge="first"),
    Row("draftlane_gain_ratio", GAUGE, "Plain seconds per token ÷ speculative ones; above 1 speculation pays", _CLASS, merge="first"),
    Row("draftlane_gain_low_ratio", GAUGE, "Lower bound of the gain", _CLASS, merge="first"),
    Row("draftlane_gain_high_ratio", GAUGE, "Upper bound of the gain", _CLASS, merge="first"),
    Row("draftlane_gain_requests", GAUGE, "Requests that the gain rests on", (*_CLASS, "lane"), merge="first"),
    Row("draftlane_verdict", GAUGE, "1 for the verdict in force: unknown, pays, does not pay or probing", (*_CLASS, "verdict"), merge="first"),
    Row("draftlane_alarm", GAUGE, "1 while an alarm is raised", ("alarm", "subject"), merge="max"),
    # What is known of outputs, and how well
    Row("draftlane_predictor_keys", GAUGE, "Keys with a history of output lengths", (), merge="max"),
    Row("draftlane_predictor_coverage_ratio", GAUGE, "Share of predictions made from a key's own history", (), merge="first"),
    Row("draftlane_predictor_within_2x_ratio", GAUGE, "Share of predictions within a factor of two", (), merge="first"),
    Row("draftlane_predictor_error_log2", GAUGE, "Mean |log2(real ÷ predicted)| of output tokens", (), merge="first"),
    Row("draftlane_prefix_entries", GAUGE, "Prompt prefixes remembered", (), merge="max"),
    Row("draftlane_retries_left", GAUGE, "Retries that the budget allows now", ()),
    # The gateway itself
    Row("draftlane_info", GAUGE, "Always 1; version and policy", ("version", "policy"), merge="max"),
    Row("draftlane_dropped_total", COUNTER, "What could not be kept: journal events, log lines, lessons for other replicas", ("what",)),
    Row("draftlane_write_failures_total", COUNTER, "Writes that failed and were tried again", ("what",)),
    Row("draftlane_redis_up", GAUGE, "1 while Redis answers", (), merge="max"),
    Row("draftlane_peers", GAUGE, "Other replicas heard of lately", (), merge="max"),
    Row("draftlane_peer_lessons_total", COUNTER, "Lessons folded in from other replicas", (), merge="max"),
)  # fmt: skip
