"""Traces of four kinds become the same requests; what is wrong with a file is said with its line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.events import Arrived, Finished
from policies.simulation_workload import Asked
from proxy import traces
from proxy.journal import Journal
from proxy.traces import TraceError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:03.0319600,4808,10
2024-05-10 00:00:00.009930+00:00,12,0
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_azure_rows_are_sorted_start_at_zero_and_lose_empty_answers(tmp_path: Path) -> None:
    read = traces.read([written(tmp_path, "code.csv", AZURE)])
    assert [(asked.app, asked.input_tokens, asked.output_tokens) for asked in read] == [
        ("code", 4808, 10),
        ("code", 3180, 8),
    ]
    assert [asked.at for asked in read] == pytest.approx([0.0, 1.0], abs=1e-6)


def test_tenants_are_applications_and_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path, "t.csv", "\ufefft_s, client, input_tokens, output_tokens\n5,a,10,2\n6.5,b,20,3\n")
    assert traces.read([path]) == [Asked(0.0, "t/a", 10, 2), Asked(1.5, "t/b", 20, 3)]


def test_the_client_column_may_be_missing(tmp_path: Path) -> None:
    path = written(tmp_path, "t.csv", "t_s,input_tokens,output_tokens\n0,10,2\n")
    assert traces.read([path]) == [Asked(0.0, "t", 10, 2)]


def test_mooncake_counts_in_milliseconds_and_blank_lines_pass(tmp_path: Path) -> None:
    lines = '{"timestamp": 1000, "input_length": 6758, "output_length": 500, "hash_ids": [1, 2]}\n\n'
    lines += '{"timestamp": 4000, "input_length": 7, "output_length": 1}\n'
    read = traces.read([written(tmp_path, "m.jsonl", lines)])
    assert read == [Asked(0.0, "m", 6758, 500), Asked(3.0, "m", 7, 1)]


def test_several_traces_are_laid_over_each_other(tmp_path: Path) -> None:
    one = written(tmp_path, "one.csv", "t_s,input_tokens,output_tokens\n100,1,1\n102,2,1\n")
    two = written(tmp_path, "two.csv", "t_s,input_tokens,output_tokens\n7,3,1\n8,4,1\n")
    assert [(asked.at, asked.app) for asked in traces.read([one, two])] == [
        (0.0, "one"),
        (0.0, "two"),
        (1.0, "two"),
        (2.0, "one"),
    ]


def test_a_journal_gives_back_the_requests_that_finished(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.start()
    for number, at in enumerate((10.0, 11.0, 12.0)):
        journal.extend([Arrived(at, f"r{number}", "m", "editor", "chat", 400)])
    journal.extend([Finished(13.0, "r1", prompt_tokens=100, completion_tokens=7)])
    journal.extend([Finished(14.0, "r0", prompt_tokens=90, completion_tokens=5)])
    journal.extend([Finished(15.0, "r2", status=400)])
    journal.close()
    assert traces.read([path]) == [Asked(0.0, "editor", 90, 5), Asked(1.0, "editor", 100, 7)]


@pytest.mark.parametrize(
    ("name", "text", "line", "word"),
    [
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", 2, "yesterday"),
        (
            "a.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n2023-11-16 18:17:04,1\n",
            3,
            "Gen",
        ),
        ("a.csv", "t_s,client,input_tokens,output_tokens\n1,a,ten,1\n", 2, "ten"),
        ("a.csv", "t_s,client,input_tokens,output_tokens\n1,a,-5,1\n", 2, "-5"),
        ("a.csv", "t_s,client,input_tokens,output_tokens\nnan,a,5,1\n", 2, "finite"),
        ("a.csv", "t_s,client,input_tokens,output_tokens\n1,a,5,0\n", 1, "no request"),
        ("a.csv", "time,in,out\n1,2,3\n", 1, "not a trace"),
        ("a.csv", "", 1, "not a trace"),
        ("a.jsonl", '{"timestamp": 0, "input_length": 1, "output_length": 1}\n{"timestamp": 0}\n', 2, "input_length"),
        ("a.jsonl", '{"timestamp": 0, "input_length": 1, "output_length": 1}\n{torn\n', 2, "malformed"),
        ("a.jsonl", '["Arrived", 1]\n', 1, "Expected"),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, name: str, text: str, line: int, word: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(TraceError, match=word) as caught:
        traces.read([path])
    assert (caught.value.path, caught.value.line) == (path, line)
    assert str(caught.value).startswith(f"{path}:{line}: ")


rows = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1, max_size=20)


@given(rows)
def test_every_written_row_comes_back(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_text("t_s,input_tokens,output_tokens\n" + "".join(f"{t},{i},{o}\n" for t, i, o in asked))
    read = traces.read([path])
    start = min(at for at, _, _ in asked)
    assert sorted((one.at + start, one.input_tokens, one.output_tokens) for one in read) == sorted(asked)


@given(st.binary(max_size=300), st.sampled_from([b"", b"t_s,input_tokens,output_tokens\n", b"{", b'["Journal",1]\n']))
def test_any_bytes_are_a_trace_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, start: bytes
) -> None:
    path = tmp_path_factory.mktemp("t") / "t"
    path.write_bytes(start + noise)
    try:
        read = traces.read([path])
    except TraceError:
        return
    assert all(asked.output_tokens > 0 for asked in read)
