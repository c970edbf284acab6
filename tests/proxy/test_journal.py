import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Decision
from policies.events import Event, Finished, FirstToken
from proxy import outbox
from proxy.journal import Journal, JournalError, Opened, entries, history, parse, read, worker_path
from proxy.outbox import Dropped, Outbox

KINDS: tuple[Any, ...] = get_args(Event)


def values(hint: Any) -> st.SearchStrategy[Any]:
    plain = {
        int: st.integers(0, 2**64 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(max_size=8),
        bool: st.booleans(),
        type(None): st.none(),
    }
    if hint in plain:
        return plain[hint]
    if getattr(hint, "__origin__", None) is not tuple:
        return st.one_of([values(arm) for arm in get_args(hint)])
    args = get_args(hint)
    if args[-1] is Ellipsis:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    return st.tuples(*map(values, args))


EVENTS: st.SearchStrategy[Event] = st.one_of(
    [st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()}) for kind in KINDS]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *events: Any, **options: Any) -> Journal:
    journal = Journal(path, **options)
    journal.start()
    for event in events:
        journal.extend([event])
    journal.close()
    return journal


@given(st.lists(EVENTS, max_size=8))
def test_what_was_written_is_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, told: list[Event]) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    assert write(path, *told).dropped == 0
    assert list(read([path])) == told


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(tmp_path_factory: pytest.TempPathFactory, at: float) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    write(path, FirstToken(at, "r"))
    (event,) = read([path])
    assert event.at.hex() == at.hex()


def test_every_file_says_what_it_was_written_under(path: Path) -> None:
    write(path, FirstToken(1.0, "r"), version="1.2", settings="abc", state="cold")
    (opened, event) = entries([path])
    assert isinstance(opened, Opened)
    assert (opened.version, opened.settings, opened.state) == ("1.2", "abc", "cold")
    assert opened.at > 1e9
    assert event == FirstToken(1.0, "r")


def test_verdicts_may_be_written_and_are_no_events(path: Path) -> None:
    decision = Decision("r", "b", "plain", "decode-heavy", "cold-start", "break-even", ("c",), 1.0, 1.0, 2.0, 2.0, None)
    write(path, FirstToken(1.0, "r"), decision)
    assert list(read([path])) == [FirstToken(1.0, "r")]
    assert list(entries([path]))[-1] == decision


def test_a_second_life_goes_on_in_the_same_file(path: Path) -> None:
    write(path, FirstToken(1.0, "a"), state="cold")
    write(path, FirstToken(2.0, "b"), state="snapshot")
    states = [entry.state for entry in entries([path]) if isinstance(entry, Opened)]
    assert states == ["cold", "snapshot"]
    assert [event.at for event in read([path])] == [1.0, 2.0]


def test_rotation_keeps_the_newest_files_in_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "AT_ONCE", 1)  # a file ends only between two writes
    write(path, *(FirstToken(float(at), "r" * 20) for at in range(2000)), max_bytes=10_000, keep=3)
    files = history(path)
    assert [file.name for file in files] == [f"{path.name}.3", f"{path.name}.2", f"{path.name}.1", path.name]
    times = [event.at for event in read(files)]
    assert times == [float(at) for at in range(2000 - len(times), 2000)]
    assert [entry.state for entry in entries(files) if isinstance(entry, Opened)] == ["continues"] * 4


def test_a_torn_last_line_is_tolerated_and_cut_off_by_the_next_life(path: Path) -> None:
    write(path, FirstToken(1.0, "a"))
    with path.open("ab") as file:
        file.write(b'["FirstToken",2.0,"to')
    assert list(read([path])) == [FirstToken(1.0, "a")]
    write(path, FirstToken(3.0, "b"))
    assert list(read([path])) == [FirstToken(1.0, "a"), FirstToken(3.0, "b")]


def test_a_file_that_is_one_long_torn_line_starts_afresh(path: Path) -> None:
    path.write_bytes(b"x" * 200_000)
    write(path, FirstToken(3.0, "b"))
    assert list(read([path])) == [FirstToken(3.0, "b")]


def test_lines_of_other_versions_are_understood_as_far_as_possible() -> None:
    assert parse(b'["Eclipsed", 1.0, {"what": "ever"}]') is None
    assert parse(b'["FirstToken", 1.0, "r", "a field of later"]') == FirstToken(1.0, "r")
    assert parse(b'["Finished", 1.0, "r"]') == Finished(1.0, "r")
    assert parse(b'["Finished", 1.0, "r", 200]') == Finished(1.0, "r", 200)


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b"[1]",
        b"nonsense",
        b'["FirstToken", 1.0]',
        b'["FirstToken", "late", "r"]',
        b'["Failed", 1.0, null, "b", "status"]',
        b"\xff\xfe",
        b'["Journal", 99]',
    ],
)
def test_a_broken_line_is_named(path: Path, line: bytes) -> None:
    write(path, FirstToken(1.0, "a"))
    with path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(JournalError) as raised:
        list(read([path]))
    assert raised.value.line == 3
    assert str(raised.value).startswith(f"{path}:3: ")


def test_another_kind_of_file_is_refused(path: Path) -> None:
    path.write_text('["FirstToken", 1.0, "r"]\n')
    with pytest.raises(JournalError, match=":1: not a draftlane journal"):
        list(read([path]))


@given(st.binary(max_size=60))
def test_parsing_answers_or_says_why_not(line: bytes) -> None:
    try:
        entry = parse(line)
    except ValueError:
        return
    assert entry is None or isinstance(entry, tuple)


def test_overflow_is_counted_and_marked_where_it_happened(path: Path) -> None:
    journal = Journal(path, bound=3)
    for at in range(8):
        journal.extend([FirstToken(float(at), "r")])
    journal.start()
    while len(journal._outbox):
        threading.Event().wait(0.001)
    journal.extend([FirstToken(99.0, "r")])
    journal.close()
    assert journal.dropped == 5
    told = list(entries([path]))[1:]
    assert told == [*(FirstToken(float(at), "r") for at in range(3)), Dropped(5), FirstToken(99.0, "r")]


def test_a_gap_at_the_very_end_is_marked_too(path: Path) -> None:
    journal = Journal(path, bound=1)
    journal.extend([FirstToken(1.0, "r")])
    journal.extend([FirstToken(2.0, "r")])
    journal.start()
    journal.close()
    assert list(entries([path]))[1:] == [FirstToken(1.0, "r"), Dropped(1)]


def test_what_json_cannot_hold_leaves_a_gap_and_takes_nothing_with_it(path: Path) -> None:
    journal = write(path, FirstToken(1.0, "a"), FirstToken(2.0, "\ud800"), FirstToken(3.0, "c"))
    assert journal.dropped == journal._lines.unencodable == 1
    assert list(entries([path]))[1:] == [FirstToken(1.0, "a"), Dropped(1), FirstToken(3.0, "c")]


def test_an_unwritable_path_costs_counters_and_one_complaint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    journal = Journal(tmp_path / "file" / "journal", retry_seconds=0.001)
    journal.start()
    journal.extend([FirstToken(1.0, "r")])
    while journal.failures < 5:
        threading.Event().wait(0.001)
    journal.close()
    assert journal.dropped == 1
    assert [record.message for record in caplog.records] == [
        "journal cannot be written: File exists (0 dropped so far)"
    ]


def test_when_the_path_becomes_writable_the_journal_goes_on(tmp_path: Path) -> None:
    way = tmp_path / "way"
    way.write_text("in the way")
    journal = Journal(way / "journal", retry_seconds=0.001)
    journal.start()
    journal.extend([FirstToken(1.0, "r")])
    while not journal.failures:
        threading.Event().wait(0.001)
    way.unlink()
    journal.extend([FirstToken(2.0, "r")])
    while len(journal._outbox):
        threading.Event().wait(0.001)
    journal.close()
    assert [event.at for event in read([way / "journal"])] == [1.0, 2.0]


def test_a_disk_that_fills_up_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.write, [700]

    def small_disk(fd: int, data: memoryview) -> int:
        taken = min(room[0], len(data))
        room[0] -= taken
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:taken])

    monkeypatch.setattr(os, "write", small_disk)
    journal = Journal(path, retry_seconds=0.001)
    journal.start()
    for at in range(40):
        journal.extend([FirstToken(float(at), "r")])
    while not journal.failures:
        threading.Event().wait(0.001)
    assert all(line.endswith(b"]\n") for line in path.read_bytes().splitlines(keepends=True))
    room[0] = 1_000_000
    journal.close()
    assert [event.at for event in read([path])] == [float(at) for at in range(40)]


def test_two_processes_never_share_a_file(path: Path) -> None:
    first = Journal(path)
    first.start()
    first.extend([FirstToken(1.0, "a")])
    while len(first._outbox):
        threading.Event().wait(0.001)
    second = write(path, FirstToken(2.0, "b"))
    assert second.dropped == 1
    first.close()
    assert list(read([path])) == [FirstToken(1.0, "a")]


def test_each_worker_has_its_own_file(path: Path) -> None:
    assert worker_path(path, 2).name == "journal.2.jsonl"
    assert worker_path("journal", 0).name == "journal.0"


def test_history_takes_only_the_rotated_files(path: Path) -> None:
    for name in ("journal.jsonl", "journal.jsonl.2", "journal.jsonl.10", "journal.jsonl.bak", "other.jsonl.1"):
        (path.parent / name).touch()
    assert [file.name for file in history(path)] == ["journal.jsonl.10", "journal.jsonl.2", "journal.jsonl"]


def gated(gate: threading.Event, told: list[int]) -> Iterator[Outbox[int, list[Any]]]:
    def write(batches: Any) -> None:
        gate.wait()
        for batch in batches:
            told.extend(batch)

    box: Outbox[int, list[Any]] = Outbox("test", list, write, bound=10_000)
    box.start()
    yield box
    gate.set()
    box.close()


def test_appending_never_waits_for_the_writer() -> None:
    gate, told = threading.Event(), list[int]()
    for box in gated(gate, told):
        for number in range(3 * outbox.SLICE):
            box.append(number)
        assert told == []
    assert told == list(range(3 * outbox.SLICE))


def test_the_examples_in_the_page_about_the_journal_are_lines() -> None:
    page = Path(__file__).parents[2] / "docs" / "journal.md"
    examples = [line.strip() for line in page.read_text().splitlines() if line.startswith("    [")]
    assert len(examples) == 6
    for example in examples:
        assert parse(example.encode()) is not None
