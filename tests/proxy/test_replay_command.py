"""``draftlane replay`` and ``draftlane explain``: what happened, from nothing but the journal."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from policies.decide import decide
from policies.decision import Verdict
from policies.events import Arrived, Cancelled, Dispatched, Event, Failed, Finished, FirstToken, Joined
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings
from proxy.commands.explain import explain
from proxy.commands.replay import replay
from proxy.journal import Journal
from proxy.replaying import lives, settings_hash, settings_text

LEAST_LOAD = PolicySettings(name="least-load")


def day(settings: PolicySettings, requests: int = 40, start: float = 1000.0) -> Iterator[Event | Verdict]:
    """Events of two lanes under some traffic, each request followed by its decision, as a gateway writes them."""
    fleet = Fleet(settings)
    for name in ("speculative", "plain"):
        yield _advanced(fleet, Joined(start, name, name, ("m",), depth=3 if name == "speculative" else 0))
    for number in range(requests):
        at, name = start + number, f"r{number}"
        arrived = Arrived(at, name, "m", "app", "chat", 400 + 40 * number, stream=True, choice=(number % 7) / 7)
        yield _advanced(fleet, arrived)
        verdict = decide(fleet, arrived)
        yield verdict
        backend = getattr(verdict, "backend", "plain")
        yield _advanced(fleet, Dispatched(at + 0.001, name, backend))
        yield _advanced(fleet, FirstToken(at + 0.1, name))
        steps = 100 if backend == "plain" else 50
        yield _advanced(
            fleet, Finished(at + 0.1 + steps / 100, name, 200, 100 + 10 * number, 0, 100, events=steps, steps=steps)
        )


def _advanced(fleet: Fleet, event: Event) -> Event:
    advance(fleet, event)
    return event


def written(path: Path, entries: Iterator[Event | Verdict], settings: str = "", state: str = "cold") -> Path:
    journal = Journal(path, settings=settings, state=state)
    journal.start()
    for entry in entries:
        journal.extend([entry])
    journal.close()
    return path


def configured(folder: Path, policy: str) -> Path:
    path = folder / f"{policy}.toml"
    path.write_text(f'[policy]\nname = "{policy}"\n')
    return path


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_same_decisions_come_out_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = written(tmp_path / "j", day(LEAST_LOAD), settings_text(LEAST_LOAD))
    digests = set()
    for _ in range(2):
        with pytest.raises(typer.Exit) as left:
            replay(journal, as_json=True)
        said = told(capsys)
        digests.add(said["sha256"])
        assert (left.value.exit_code, said["decisions"], said["written"]) == (0, 40, 40)
        assert (said["different"], said["doubts"]) == ([], [])
    assert len(digests) == 1


def test_every_decision_can_be_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = written(tmp_path / "j", day(LEAST_LOAD), settings_text(LEAST_LOAD))
    with pytest.raises(typer.Exit):
        replay(journal, decisions=True)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in printed] == [["Decision", f"r{number}"] for number in range(40)]


def test_decisions_that_come_out_differently_are_a_failed_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = written(tmp_path / "j", day(LEAST_LOAD))
    with pytest.raises(typer.Exit) as left:
        replay(journal, was=configured(tmp_path, "all-plain"), as_json=True)
    assert left.value.exit_code == 1
    assert told(capsys)["different"]


def test_other_settings_tell_what_would_have_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = written(tmp_path / "j", day(PolicySettings(name="all-speculative")), '{"name": "all-speculative"}')
    replay(journal, configured(tmp_path, "all-plain"), as_json=True)
    said = told(capsys)
    assert (said["requests"], said["changed"], said["moves"]) == (40, 40, {"speculative→plain": 40})
    replay(journal, configured(tmp_path, "all-plain"))
    assert "40 of 40 requests would have gone elsewhere (100.0%)" in capsys.readouterr().out


def test_a_restart_begins_a_life_with_an_empty_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "j", day(LEAST_LOAD), settings_text(LEAST_LOAD))
    written(path, day(PolicySettings(), 5, start=9000.0), settings_text(PolicySettings()))
    assert [life.settings(None).name for life in lives(path) if list(life.events())] == ["least-load", "break-even"]
    with pytest.raises(typer.Exit) as left:
        replay(path, as_json=True)
    assert (left.value.exit_code, told(capsys)["written"]) == (0, 45)


@pytest.mark.parametrize(
    ("settings", "state", "doubt"),
    [
        ("0123456789abcdef", "cold", "give its configuration with --was"),
        ("", "continues", "its beginning was rotated away"),
        ("", "redis", "began with a memory from redis"),
    ],
)
def test_reasons_to_doubt_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, state: str, doubt: str
) -> None:
    journal = written(tmp_path / "j", day(PolicySettings()), settings, state)
    with pytest.raises(typer.Exit):
        replay(journal)
    assert doubt in " ".join(capsys.readouterr().out.split())


def test_a_hash_of_the_right_settings_is_no_reason_to_doubt(tmp_path: Path) -> None:
    journal = written(tmp_path / "j", day(LEAST_LOAD), settings_hash(LEAST_LOAD))
    for life in lives(journal):
        assert len(list(life.events())) == 2 + 4 * 40
        assert list(life.doubts(LEAST_LOAD)) == []
        assert list(life.doubts(None)) == [
            "it was written under settings that are not in it: give its configuration with --was"
        ]
        assert list(life.doubts(PolicySettings(name="all-plain"))) == [
            "the settings of --was are not those it was written under"
        ]


def test_a_broken_journal_is_the_operators_to_know(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('["Journal",1]\nnonsense\n')
    with pytest.raises(typer.BadParameter, match=r"j:2: "):
        replay(tmp_path / "j")
    with pytest.raises(typer.BadParameter, match=r"j:2: "):
        explain(tmp_path / "j", "r1")


def test_a_request_is_explained_with_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = written(tmp_path / "j", day(LEAST_LOAD), settings_text(LEAST_LOAD))
    explain(journal, "r7")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("    0.000 s  The prompt has about ")
    assert any("has the fewest requests in flight." in line for line in lines)
    assert any(line.startswith("    0.001 s  It was sent to ") for line in lines)
    assert lines[-1].startswith("    1.100 s  It ended with status 200: 170 prompt tokens")


def test_a_retried_request_is_explained_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def story() -> Iterator[Event | Verdict]:
        yield Joined(1.0, "a", "plain", ("m",))
        yield Joined(1.0, "b", "plain", ("m",))
        arrived = Arrived(2.0, "one", "m", "app", "chat", 400)
        yield arrived
        yield Dispatched(2.0, "one", "a")
        yield Failed(3.0, "one", "a", "closed", final=False)
        yield arrived._replace(at=3.0, excluded=("a",))
        yield Dispatched(3.0, "one", "b")
        yield Cancelled(4.0, "one", events=3)
        yield Arrived(5.0, "two", "m", "app", "chat", 400)

    journal = written(tmp_path / "j", story())
    explain(journal, "one", as_json=True)
    said = json.loads(capsys.readouterr().out)
    firsts = [(step["after_seconds"], step["told"][0]) for step in said["steps"]]
    assert firsts[1:3] == [(0.0, "It was sent to a."), (1.0, "a failed: closed.")]
    assert firsts[3] == (1.0, "It was judged again.")
    assert firsts[-1] == (2.0, "The client left after 3 events of the answer.")
    assert [step["verdict"]["backend"] for step in said["steps"] if step["verdict"]] == ["a", "b"]


def test_an_unknown_request_is_the_operators_mistake(tmp_path: Path) -> None:
    journal = written(tmp_path / "j", day(LEAST_LOAD, 2))
    with pytest.raises(typer.BadParameter, match="the journal has no request 'r99'"):
        explain(journal, "r99")
