import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from policies.events import Arrived, Dispatched, Failed, Finished, FirstToken, Joined
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings
from policies.snapshot import snapshot
from proxy import metrics as room
from proxy.histogram import Histogram
from proxy.metric_state import FLAGS, READINGS, rows
from proxy.metric_table import HISTOGRAM
from proxy.metrics import METRICS, Figures, Metrics, merge, page
from proxy.outcome import Outcome

parse_openmetrics: Callable[[str], Iterator[Metric]] = openmetrics_parser.text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text;version=1.0.0"

NOTHING: Mapping[str, object] = {}

ANSWERED = Outcome(
    id="r1",
    surface="chat",
    model="qwen",
    model_known=True,
    app="coder",
    lane="speculative",
    workload="decode-heavy",
    backend="spec-1",
    status=200,
    outcome="ok",
    latency_seconds=3.0,
    own_seconds=0.0003,
    ttft_seconds=0.3,
    tpot_seconds=0.012,
    stream=True,
    reason="break-even",
    prompt_tokens=100,
    cached_tokens=40,
    predicted_tokens=150.0,
    output_from="app+model",
    completion_tokens=200,
)

SNAPSHOT: dict[str, object] = {
    "policy": "break-even",
    "backends": [
        {"name": "spec-1", "lane": "speculative", "engine": "vllm", "in_flight": 5, "own_in_flight": 3, "state": "half-open",
         "step_base_seconds": 0.0125, "finished": 200,
         "acceptance": {"rate": 0.61, "tokens_per_step": 2.83, "requests": 184, "draft_tokens": 9000.0},
         "acceptance_by_class": {"qwen|coder|code|low": {"rate": 0.7, "tokens_per_step": 3.1, "requests": 90}}},
        {"name": "plain-1", "lane": "plain", "engine": "vllm", "in_flight": 0, "own_in_flight": 0, "state": "serving",
         "step_base_seconds": None, "acceptance": {"rate": None}},
    ],
    "scrapes": [{"name": "spec-1", "running": 6, "waiting": None, "age_seconds": 1.5}],
    "break_even": {"qwen": {"ratio": 0.07, "input_tokens": 500.0}},
    "verdicts": [{"model": "qwen", "application": "coder", "content": "code", "temperature": "low", "verdict": "pays",
                  "ratio": 1.6, "lower": 1.4, "upper": 1.8, "speculative_requests": 80.0, "plain_requests": 20.0}],
    "predictor": {"keys": 12, "coverage": 0.9, "within_2x": 0.8, "error_log2": None},
    "memory": {"prefixes": 44},
    "alarms": [{"kind": "low-acceptance", "subject": "spec-1", "text": "…", "value": 0.2}],
    "retries_left": 10.0,
}  # fmt: skip


def counted(*outcomes: Outcome) -> Metrics:
    metrics = Metrics("1.0", "break-even")
    for outcome in outcomes:
        metrics.started(outcome.surface)
        metrics.ended([outcome])
    return metrics


def families(metrics: Metrics, state: Mapping[str, object] = NOTHING) -> dict[str, Metric]:
    return {family.name: family for family in parse_text(metrics.render(state).body.decode())}


def values(families: Iterable[Metric]) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, state: Mapping[str, object] = NOTHING, /, **labels: str) -> float | None:
    return next(
        (
            sample.value
            for family in families(metrics, state).values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ),
        None,
    )


def test_one_answer_is_counted_everywhere_it_belongs() -> None:
    metrics = counted(ANSWERED)
    said = {"lane": "speculative", "class": "decode-heavy"}
    assert value(metrics, "draftlane_requests_total", surface="chat", outcome="ok", status="2xx", **said) == 1
    assert value(metrics, "draftlane_requests_in_progress", surface="chat") == 0
    assert value(metrics, "draftlane_app_requests_total", app="coder", lane="speculative") == 1
    assert value(metrics, "draftlane_decisions_total", backend="spec-1", reason="break-even", **said) == 1
    tokens = [value(metrics, "draftlane_app_tokens_total", app="coder", kind=kind) for kind in ("input", "cached", "output")]  # fmt: skip
    assert tokens == [100, 40, 200]
    assert value(metrics, "draftlane_predictions_total", source="app+model", within_2x="true") == 1
    assert value(metrics, "draftlane_predicted_to_real_output_sum") == 0.75
    for name, seconds in (
        ("draftlane_time_to_first_token_seconds", 0.3),
        ("draftlane_time_per_output_token_seconds", 0.012),
        ("draftlane_request_duration_seconds", 3.0),
    ):
        assert value(metrics, f"{name}_sum", **said) == seconds
        assert value(metrics, f"{name}_count", **said) == 1
    assert value(metrics, "draftlane_own_seconds_sum") == 0.0003


def test_the_words_of_the_genai_conventions_tell_the_same() -> None:
    metrics = counted(ANSWERED, replace(ANSWERED, outcome="backend_error", status=502, fault="closed"))
    what = {
        "gen_ai_operation_name": "chat",
        "gen_ai_provider_name": "openai",
        "gen_ai_request_model": "qwen",
    }
    assert value(metrics, "gen_ai_server_time_to_first_token_seconds_sum", **what) == 0.3
    assert value(metrics, "gen_ai_server_time_per_output_token_seconds_count", **what) == 1
    assert value(metrics, "gen_ai_server_request_duration_seconds_count", error_type="closed", **what) == 1
    assert value(metrics, "gen_ai_client_token_usage_sum", gen_ai_token_type="output", **what) == 400


def test_a_request_that_was_turned_away_names_the_cause() -> None:
    metrics = counted(
        replace(ANSWERED, lane="", workload="", backend="", status=429, outcome="rejected", fault="overloaded",
                          ttft_seconds=None, tpot_seconds=None, completion_tokens=None, own_seconds=None)
    )  # fmt: skip
    assert value(metrics, "draftlane_rejections_total", cause="overloaded") == 1
    assert value(metrics, "draftlane_decisions_total") is None
    assert value(metrics, "draftlane_time_to_first_token_seconds_count") == 0


def test_a_client_that_left_before_any_status_has_none() -> None:
    assert (
        value(counted(replace(ANSWERED, status=0, outcome="cancelled")), "draftlane_requests_total", status="none") == 1
    )


def test_saved_requests_still_show_the_fault() -> None:
    metrics = counted(replace(ANSWERED, retries=1, requeues=2))
    metrics.heard([Failed(1.0, "a", "plain-1", "connect")])
    assert value(metrics, "draftlane_faults_total", backend="plain-1", fault="connect") == 1
    assert value(metrics, "draftlane_retries_total", surface="chat") == 1
    assert value(metrics, "draftlane_requeues_total", surface="chat") == 2


def test_what_runs_is_a_gauge() -> None:
    metrics = Metrics()
    metrics.started("chat")
    metrics.started("chat")
    metrics.ended([ANSWERED])
    assert value(metrics, "draftlane_requests_in_progress", surface="chat") == 1


def test_names_that_clients_make_up_stay_bounded() -> None:
    metrics = counted(
        *(replace(ANSWERED, app=f"app-{number}", model=f"m{number}", model_known=False) for number in range(300))
    )
    apps = {sample.labels["app"] for sample in families(metrics)["draftlane_app_requests"].samples}
    assert len(apps) == room.APPS_NAMED + 1
    assert value(metrics, "draftlane_app_requests_total", app="other") == 200
    assert value(metrics, "gen_ai_server_request_duration_seconds_count", gen_ai_request_model="other") == 300


def test_the_number_of_cells_is_bounded_and_nothing_is_lost() -> None:
    metrics = counted(*(replace(ANSWERED, reason=f"reason-{number}") for number in range(room.CELLS + 100)))
    assert len(metrics._cells) == room.CELLS + 1
    assert value(metrics, "draftlane_decisions_total", reason="other", backend="other") == 100
    assert value(metrics, "draftlane_requests_total") == room.CELLS + 100


def test_learnt_figures_come_from_the_snapshot() -> None:
    metrics = Metrics()
    one_class = {"model": "qwen", "app": "coder", "content": "code", "temperature": "low"}
    assert value(metrics, "draftlane_backend_in_flight", SNAPSHOT, backend="spec-1", lane="speculative") == 3
    assert value(metrics, "draftlane_backend_peer_in_flight", SNAPSHOT, backend="spec-1", lane="speculative") == 2
    assert value(metrics, "draftlane_backend_info", SNAPSHOT, backend="plain-1", engine="vllm") == 1
    assert value(metrics, "draftlane_backend_state", SNAPSHOT, backend="spec-1", state="half-open") == 1
    assert value(metrics, "draftlane_backend_state", SNAPSHOT, backend="spec-1", state="open") == 0
    assert value(metrics, "draftlane_backend_running", SNAPSHOT, backend="spec-1") == 6
    assert value(metrics, "draftlane_backend_scrape_age_seconds", SNAPSHOT, backend="spec-1") == 1.5
    assert value(metrics, "draftlane_acceptance_ratio", SNAPSHOT, backend="spec-1") == 0.61
    assert value(metrics, "draftlane_acceptance_requests", SNAPSHOT, backend="spec-1") == 184
    assert value(metrics, "draftlane_class_acceptance_ratio", SNAPSHOT, backend="spec-1", **one_class) == 0.7
    assert value(metrics, "draftlane_break_even_ratio", SNAPSHOT, model="qwen") == 0.07
    assert value(metrics, "draftlane_verdict", SNAPSHOT, verdict="pays", **one_class) == 1
    assert value(metrics, "draftlane_gain_low_ratio", SNAPSHOT, **one_class) == 1.4
    assert value(metrics, "draftlane_gain_requests", SNAPSHOT, lane="plain") == 20
    assert value(metrics, "draftlane_predictor_coverage_ratio", SNAPSHOT) == 0.9
    assert value(metrics, "draftlane_prefix_entries", SNAPSHOT) == 44
    assert value(metrics, "draftlane_retries_left", SNAPSHOT) == 10
    assert value(metrics, "draftlane_alarm", SNAPSHOT, alarm="low-acceptance", subject="spec-1") == 1


def test_what_is_not_known_has_no_sample() -> None:
    assert value(Metrics(), "draftlane_backend_waiting", SNAPSHOT) is None
    assert value(Metrics(), "draftlane_backend_step_seconds", SNAPSHOT, backend="plain-1") is None
    assert value(Metrics(), "draftlane_acceptance_ratio", SNAPSHOT, backend="plain-1") is None
    assert value(Metrics(), "draftlane_predictor_error_log2", SNAPSHOT) is None


def test_a_real_snapshot_fills_the_metrics_it_is_for() -> None:
    fleet = Fleet(PolicySettings())
    for name, lane, depth in (("spec-1", "speculative", 3), ("plain-1", "plain", 0)):
        advance(fleet, Joined(1.0, name, lane, ("qwen",), "vllm", depth))
    for number in range(60):
        backend, at = ("spec-1", "plain-1")[number % 2], 2.0 + number
        request = f"r{number}"
        advance(fleet, Arrived(at, request, "qwen", "coder", "chat", 4000, stream=True))
        advance(fleet, Dispatched(at, request, backend))
        advance(fleet, FirstToken(at + 0.2, request))
        steps = 40 if backend == "spec-1" else None
        advance(fleet, Finished(at + 1.5, request, prompt_tokens=1000, completion_tokens=101, events=100, steps=steps,
                                draft_tokens=steps and 3 * steps, accepted_tokens=steps and 60))  # fmt: skip
    told = {name for name, _, _ in rows(snapshot(fleet, 100.0))}
    not_here = {reading.metric for reading in READINGS if reading.section == "scrapes"}
    assert {reading.metric for reading in READINGS} | {flag.metric for flag in FLAGS} == told - {
        "draftlane_backend_info", "draftlane_alarm"
    } | not_here  # fmt: skip


ANYTHING = st.none() | st.floats() | st.text(max_size=3) | st.dictionaries(st.text(max_size=9), st.none() | st.floats())


@given(
    st.dictionaries(
        st.sampled_from([*{reading.section for reading in READINGS}, "alarms"]),
        ANYTHING | st.lists(ANYTHING | st.dictionaries(st.sampled_from(["name", "lane", "verdict", "ratio", "acceptance_by_class"]), ANYTHING)),
    )
)  # fmt: skip
def test_any_snapshot_yields_a_valid_page(state: dict[str, object]) -> None:
    assert list(parse_text(Metrics().render(state).body.decode()))
    assert list(parse_openmetrics(Metrics().render(state, OPENMETRICS).body.decode()))


def test_classes_beyond_the_limit_are_those_with_least_evidence() -> None:
    classes = [{"model": f"m{number}", "ratio": 1.0, "plain_requests": float(number)} for number in range(500)]
    shown = {labels[0] for name, labels, _ in rows({"verdicts": classes}) if name == "draftlane_gain_ratio"}
    assert shown == {f"m{number}" for number in range(300, 500)}


def test_all_that_the_snapshot_may_tell_is_in_the_table() -> None:
    labels = {row.name: len(row.labels) for row in METRICS}
    for reading in READINGS:
        assert labels[reading.metric] == len(reading.labels) + (reading.says is not None)
    for flag in FLAGS:
        assert labels[flag.metric] == len(flag.labels) + 1


def test_both_formats_tell_the_same() -> None:
    metrics = counted(ANSWERED)
    text = metrics.render(SNAPSHOT, "text/plain")
    openmetrics = metrics.render(SNAPSHOT, OPENMETRICS)
    assert text.content_type.startswith("text/plain; version=0.0.4")
    assert openmetrics.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.body.endswith(b"# EOF\n")
    assert values(parse_openmetrics(openmetrics.body.decode())) == values(parse_text(text.body.decode()))


def test_every_sample_belongs_to_a_row_of_the_table() -> None:
    table = {row.name.removesuffix("_total"): row for row in METRICS}
    for name, family in families(counted(ANSWERED), SNAPSHOT).items():
        assert (family.type, family.documentation) == (table[name].kind, table[name].help)
        for sample in family.samples:
            assert sample.labels.keys() <= {*table[name].labels, "le"}


@given(st.text())
def test_any_label_value_survives(app: str) -> None:
    page = counted(replace(ANSWERED, app=app)).render({})
    sample = next(
        parsed for parsed in parse_text(page.body.decode()) if parsed.name == "draftlane_app_requests"
    ).samples[0]
    assert sample.labels.get("app", "") == app


def test_a_lone_surrogate_cannot_break_the_page() -> None:
    assert value(counted(replace(ANSWERED, app="\ud800")), "draftlane_app_requests_total", app="?") == 1


@pytest.mark.parametrize(("number", "said"), [(float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")])
def test_numbers_beyond_the_real_ones_have_their_words(number: float, said: str) -> None:
    assert f"draftlane_peers {said}\n" in page({"draftlane_peers": {(): number}}).body.decode()


def test_watched_figures_are_asked_at_the_scrape() -> None:
    metrics, dropped = Metrics(), [0]
    metrics.watch("draftlane_dropped_total", lambda: dropped[0], "journal")
    dropped[0] = 7
    assert value(metrics, "draftlane_dropped_total", what="journal") == 7


def test_workers_figures_become_one() -> None:
    one, two = counted(ANSWERED, ANSWERED), counted(replace(ANSWERED, app="writer"))
    exported: list[Figures] = [pickle.loads(pickle.dumps(metrics.export(SNAPSHOT))) for metrics in (one, two)]
    merged = merge(exported)
    single = counted(ANSWERED, ANSWERED, replace(ANSWERED, app="writer")).export(SNAPSHOT)
    summed = {"draftlane_backend_in_flight", "draftlane_retries_left"}
    assert {name: merged[name] for name in merged if name not in summed} == {
        name: single[name] for name in single if name not in summed
    }
    assert merged["draftlane_backend_in_flight"]["spec-1", "speculative"] == 6
    assert list(parse_text(page(merged).body.decode()))


@given(st.lists(st.floats(0, 1e6)), st.lists(st.floats(0, 1e6), min_size=1, max_size=5, unique=True).map(sorted))
def test_a_histogram_counts_as_prometheus_does(observed: list[float], bounds: list[float]) -> None:
    histogram = Histogram(tuple(bounds))
    for number in observed:
        histogram.observe(number)
    cumulative = [sum(histogram.counts[: place + 1]) for place in range(len(bounds))]
    assert cumulative == [sum(number <= bound for number in observed) for bound in bounds]
    assert sum(histogram.counts) == len(observed)
    assert histogram.total == pytest.approx(sum(observed))


def test_the_table_is_sound() -> None:
    assert len({row.name for row in METRICS}) == len(METRICS)
    for row in METRICS:
        assert row.name.startswith(("draftlane_", "gen_ai_"))
        assert row.name.endswith("_total") == (row.kind == "counter")
        assert (row.bounds != ()) == (row.kind == HISTOGRAM)
        assert list(row.bounds) == sorted(set(row.bounds))
        assert row.merge in ("sum", "max", "first")


def test_the_page_about_metrics_has_each_row() -> None:
    text = (Path(room.__file__).parent.parent / "docs" / "metrics.md").read_text()
    listed = [line for line in text.splitlines() if line.startswith(("| `draftlane_", "| `gen_ai_"))]
    assert listed == [
        f"| `{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.help} |".replace("|  |", "| |")
        for row in METRICS
    ]
