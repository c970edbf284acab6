"""What engines say on their metrics pages, as the gateway reads it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.engines import ENGINES
from proxy.engines.base import Scrape
from proxy.engines.exposition import samples

VLLM_SPECULATING = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 188.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 12.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7959691892237835e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 376.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.7959691892237835e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.7959691892237835e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 180.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.7959691892237835e+09
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:generation_tokens_total{engine="0",model_name="m"} 1217.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="m"} 29.0
"""


def test_vllm_counters_are_summed_over_engines_and_creation_times_ignored() -> None:
    scrape = ENGINES["vllm"].read_metrics(VLLM_SPECULATING)
    assert scrape == Scrape(
        running=4,
        waiting=2,
        cache_usage=0.5,
        drafts=200.0,
        draft_tokens=376.0,
        accepted_tokens=300.0,
        accepted_per_position=(187.0, 120.0),
        generated_tokens=1217.0,
    )


def test_a_vllm_that_does_not_speculate_has_no_counters_rather_than_zeros() -> None:
    scrape = ENGINES["vllm"].read_metrics('vllm:num_requests_running{engine="0"} 0.0\n')
    assert scrape == Scrape(running=0)


def test_the_old_name_of_the_cache_gauge_is_read_where_the_new_one_is_missing() -> None:
    assert ENGINES["vllm"].read_metrics("vllm:gpu_cache_usage_perc 0.125\n").cache_usage == 0.125
    both = "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n"
    assert ENGINES["vllm"].read_metrics(both).cache_usage == 0.1


def test_a_renamed_counter_is_not_known_instead_of_zero() -> None:
    page = VLLM_SPECULATING.replace("spec_decode_num_drafts_total", "spec_decode_proposals_total")
    scrape = ENGINES["vllm"].read_metrics(page)
    assert scrape.drafts is None
    assert scrape.accepted_tokens == 300.0


def test_llamacpp_counters_have_no_labels_and_are_there_when_it_does_not_speculate() -> None:
    page = (
        "llamacpp:tokens_predicted_total 1811\n"
        "llamacpp:tokens_predicted_seconds_total 109.8\n"
        "llamacpp:spec_decode_num_draft_tokens_total 0\n"
        "llamacpp:spec_decode_num_accepted_tokens_total 0\n"
        "llamacpp:spec_decode_num_drafts_total 0\n"
        "llamacpp:requests_processing 1\n"
        "llamacpp:requests_deferred 4\n"
    )
    assert ENGINES["llamacpp"].read_metrics(page) == Scrape(
        running=1, waiting=4, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0, generated_tokens=1811.0
    )


def test_llamacpp_positions_are_ordered_by_number_not_by_text() -> None:
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    page = "".join(
        f'{name}{{position="{position}"}} {100 - position}\n' for position in (10, 2, 0, 1, 9, 3, 4, 5, 6, 7, 8)
    )
    positions = ENGINES["llamacpp"].read_metrics(page).accepted_per_position
    assert positions == tuple(100.0 - position for position in range(11))


def test_sglang_offers_a_length_gauge_that_is_unknown_until_something_was_verified() -> None:
    labels = '{engine_type="unified",model_name="m",tp_rank="0"}'
    page = (
        f"sglang:spec_accept_length{labels} 0.0\nsglang:num_running_reqs{labels} 5.0\n"
        f"sglang:num_queue_reqs{labels} 1.0\nsglang:token_usage{labels} 0.4\n"
    )
    assert ENGINES["sglang"].read_metrics(page) == Scrape(running=5, waiting=1, cache_usage=0.4)
    measured = page.replace(" 0.0\n", " 2.5\n") + f"sglang:spec_verify_calls_total{labels} 40.0\n"
    scrape = ENGINES["sglang"].read_metrics(measured)
    assert (scrape.acceptance_length, scrape.drafts) == (2.5, 40.0)


def test_sglang_data_parallel_ranks_are_averaged_for_a_length_and_summed_for_a_count() -> None:
    page = (
        'sglang:spec_accept_length{dp_rank="0"} 2.0\nsglang:spec_accept_length{dp_rank="1"} 3.0\n'
        'sglang:num_running_reqs{dp_rank="0"} 2\nsglang:num_running_reqs{dp_rank="1"} 3\n'
    )
    scrape = ENGINES["sglang"].read_metrics(page)
    assert (scrape.acceptance_length, scrape.running) == (2.5, 5)


@pytest.mark.parametrize("infix", ["", "num_"], ids=["named-per-position", "labelled-totals"])
def test_trtllm_positions_are_found_under_both_spellings(infix: str) -> None:
    page = (
        f'trtllm_spec_decode_{infix}accepted_tokens_total{{token_position="0"}} 30\n'
        f'trtllm_spec_decode_{infix}accepted_tokens_total{{token_position="1"}} 12\n'
        f'trtllm_spec_decode_{infix}draft{"" if infix else "ed"}_tokens_total{{token_position="0"}} 90\n'
        "trtllm_num_requests_running 2\n"
    )
    scrape = ENGINES["trtllm"].read_metrics(page)
    assert (scrape.accepted_per_position, scrape.accepted_tokens, scrape.draft_tokens) == ((30.0, 12.0), 42.0, 90.0)


def test_tgi_steps_and_accepted_tokens_are_the_count_and_sum_of_one_histogram() -> None:
    page = (
        'tgi_request_skipped_tokens_bucket{le="0"} 10\ntgi_request_skipped_tokens_sum 55\n'
        "tgi_request_skipped_tokens_count 40\ntgi_queue_size 2\ntgi_batch_current_size 6\n"
    )
    assert ENGINES["tgi"].read_metrics(page) == Scrape(running=6, waiting=2, drafts=40.0, accepted_tokens=55.0)


def test_a_broken_line_costs_only_itself() -> None:
    page = (
        'vllm:num_requests_running{engine="0} 3\nvllm:num_requests_waiting{engine="0"} many\n'
        "vllm:generation_tokens_total NaN\nvllm:spec_decode_num_drafts_total -4\n<html>\r\n"
        'vllm:spec_decode_num_draft_tokens_total{engine="0",} 8 1795969189000\r\n'
    )
    assert ENGINES["vllm"].read_metrics(page) == Scrape(draft_tokens=8.0)


def test_labels_are_read_as_written_even_where_a_value_looks_like_a_label() -> None:
    page = 'm{model_name="a\\"position=\\"7",reason="x}y",position="2"} 5\n'
    (sample,) = samples(page, "m")
    assert sample.label("position") == "2"
    assert sample.label("reason") == "x}y"
    assert sample.label("engine") is None


def test_an_absurd_position_does_not_size_a_list() -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    page = f'{name}{{position="999999999"}} 1\n{name}{{position="255"}} 1\n{name}{{position="-1"}} 1\n{name}{{position="²"}} 1\n'
    assert len(ENGINES["vllm"].read_metrics(page).accepted_per_position) == 256


def test_totals_too_large_for_a_number_are_unknown() -> None:
    page = 'vllm:num_requests_running{engine="0"} 1.7e308\nvllm:num_requests_running{engine="1"} 1.7e308\n'
    assert ENGINES["vllm"].read_metrics(page).running is None


_NAMES = [
    "vllm:num_requests_running",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "llamacpp:requests_deferred",
]
_LINES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(_NAMES),
    st.sampled_from(["", "{", "{}", '{position="1"}', '{position="', "{position=0}", '{a="\\"}', "_total"])
    | st.text(max_size=8),
    st.sampled_from([" ", "\t", "", "  "]),
    st.floats().map(str) | st.integers().map(str) | st.text(max_size=8),
)


@given(
    st.sampled_from(sorted(ENGINES)), st.text() | st.lists(_LINES | st.text(max_size=30), max_size=12).map("\n".join)
)
@example("vllm", "vllm:num_requests_running")
@example("vllm", "\x00\ud800")
def test_no_page_makes_any_engine_fail(name: str, page: str) -> None:
    scrape = ENGINES[name].read_metrics(page)
    for number in (*scrape[:6], *scrape[7:], *scrape.accepted_per_position):
        assert number is None or (isinstance(number, int | float) and number >= 0)


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 10**6), max_size=8), st.permutations(range(3)))
def test_order_and_split_over_engines_do_not_change_the_totals(positions: dict[int, int], engines: list[int]) -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    lines = [f'{name}{{engine="{e}",position="{p}"}} {v}' for e in engines for p, v in positions.items()]
    scrape = ENGINES["vllm"].read_metrics("\n".join(lines))
    assert scrape.accepted_per_position == tuple(
        3.0 * positions.get(p, 0) for p in range(max(positions, default=-1) + 1)
    )
