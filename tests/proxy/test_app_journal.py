"""What a real run wrote: replayed byte for byte, tried under other settings, explained request by request."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from policies.decision import Decision
from policies.events import Arrived
from proxy.cli import app as command_line
from proxy.journal import entries
from tests.live.lanes import MODEL, Live, both_lanes, configured, engines, gateway, two
from tests.scripted.backend import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"cold_requests": 2, "lane_rules": {"min_p": "plain"}}


class Day(NamedTuple):
    """A journal, and the headers of the answers behind it."""

    journal: Path
    told: list[dict[str, str]]


async def traffic(live: Live) -> list[dict[str, str]]:
    """Three applications at once, some requests odd, one client that leaves; the answers' headers."""

    async def one(app: str, number: int) -> dict[str, str]:
        more: dict[str, Any] = {"stream": number % 2 == 0, "max_tokens": 6 + 10 * (number % 3)}
        more |= {"min_p": 0.1} if number == 3 else {"logit_bias": {"7": 1}} if number == 4 else {}
        prompt = f"{app} {number} " * (60 if app == "summariser" else 3)
        # One is sent where it will be refused, or luck would decide whether any is.
        lane = {"x-draftlane-lane": "speculative"} if (app, number) == ("coder", 4) else {}
        answer = await live.chat(prompt, headers={"x-draftlane-app": app, **lane}, **more)
        assert answer.status_code == 200, answer.text
        return {name: value for name, value in answer.headers.items() if name.startswith("x-")}

    async def some(app: str) -> list[dict[str, str]]:
        return [await one(app, number) for number in range(8)]

    told = await asyncio.gather(*map(some, ("coder", "letters", "summariser")))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await live.chat("leaving", max_tokens=5000, ignore_eos=True, headers={"x-request-id": "left"})
    return [headers for some in told for headers in some]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def day(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Day]:
    """The journal of a gateway that ran and stopped, started again and stopped again."""
    folder = tmp_path_factory.mktemp("day")
    told = []
    async with engines() as (speculative, plain):
        said = {
            # It refuses what no rule knows of: found out, remembered, and to be replayed too.
            "backends": two(speculative, plain, {"refuses": []}),
            "policy": SETTINGS,
            "journal": {"path": "journal.jsonl"},
            "log": {"level": "error", "decisions": False},
        }
        for _ in range(2):
            async with gateway(configured(said, folder)) as live:
                told += await traffic(live)
    yield Day(folder / "journal.jsonl", told)


def run(*words: str | Path) -> tuple[int, str]:
    """Exit status and standard output of a command."""
    done = CliRunner().invoke(command_line, [str(word) for word in words])
    return done.exit_code, done.output


async def test_the_decisions_come_out_again_byte_for_byte(day: Day) -> None:
    status, said = run("replay", day.journal, "--json")
    told = json.loads(said)
    assert (status, told["different"], told["doubts"]) == (0, [], [])
    assert told["written"] == told["decisions"] > len(day.told)
    assert json.loads(run("replay", day.journal, "--json")[1])["sha256"] == told["sha256"]


async def test_the_decisions_in_the_journal_are_what_clients_were_told(day: Day) -> None:
    last = {entry.id: entry for entry in entries([day.journal]) if isinstance(entry, Decision)}
    for headers in day.told:
        decision = last[headers["x-request-id"]]
        assert (decision.backend, decision.lane) == (headers["x-draftlane-backend"], headers["x-draftlane-lane"])
        assert (decision.workload, decision.reason) == (headers["x-draftlane-class"], headers["x-draftlane-reason"])


async def test_printed_decisions_are_lines_of_json(day: Day) -> None:
    status, said = run("replay", day.journal, "--decisions")
    lines = [json.loads(line) for line in said.splitlines()]
    assert status == 0
    written = [list(entry) for entry in entries([day.journal]) if isinstance(entry, Decision)]
    assert [line[1:] for line in lines if line[0] == "Decision"] == json.loads(json.dumps(written))


async def test_other_settings_move_requests_and_say_which(day: Day, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[policy]\nname = "all-plain"\n')
    status, said = run("replay", day.journal, "-c", other, "--json")
    told = json.loads(said)
    arrivals = sum(isinstance(entry, Arrived) for entry in entries([day.journal]))
    assert (status, told["requests"]) == (0, arrivals)
    assert set(told["moves"]) == {"speculative→plain"}
    assert told["changed"] == sum(told["moves"].values()) > 0
    status, shown = run("replay", day.journal, "-c", other)
    assert (status, f"{told['changed']:,} of {arrivals:,} requests" in shown) == (0, True)


async def test_the_same_settings_move_nothing(day: Day, tmp_path: Path) -> None:
    same = tmp_path / "same.toml"
    same.write_text('[policy]\ncold_requests = 2\nlane_rules = { min_p = "plain" }\n')
    assert json.loads(run("replay", day.journal, "-c", same, "--json")[1])["changed"] == 0


async def test_every_request_can_be_explained_a_sentence_per_step(day: Day) -> None:
    for headers in day.told[::5]:
        status, said = run("explain", day.journal, headers["x-request-id"])
        assert status == 0
        assert f"It was sent to {headers['x-draftlane-backend']}." in said
        assert "output tokens are expected" in said
        assert "It ended with status 200" in said
        assert "note:" not in said


async def test_a_refusal_is_told_step_by_step(day: Day) -> None:
    refused = next(
        entry.id for entry in entries([day.journal]) if isinstance(entry, Decision) and refused_first(day, entry.id)
    )
    status, said = run("explain", day.journal, refused)
    assert status == 0
    assert "refused it because of logit_bias" in said
    assert "It was judged again." in said
    steps = json.loads(run("explain", day.journal, refused, "--json")[1])["steps"]
    assert [step["verdict"]["lane"] for step in steps if step["verdict"]] == ["speculative", "plain"]


def refused_first(day: Day, name: str) -> bool:
    return any(type(entry).__name__ == "Refused" and entry.id == name for entry in entries([day.journal]))  # type: ignore[union-attr]  # a Refused has an id


async def test_a_client_that_left_is_told_of_too(day: Day) -> None:
    status, said = run("explain", day.journal, "left")
    assert (status, "The client left" in said) == (0, True)


async def test_a_request_that_is_not_there_is_the_operators_mistake(day: Day) -> None:
    assert run("explain", day.journal, "nobody")[0] == 2


async def test_the_journal_of_two_lives_knows_both(day: Day) -> None:
    names = [entry.id for entry in entries([day.journal]) if isinstance(entry, Arrived)]
    assert {headers["x-request-id"] for headers in day.told} <= set(names)
    assert MODEL in day.journal.read_text()


async def test_a_journal_that_cannot_be_written_costs_no_request(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    async with both_lanes(journal={"path": str(blocked / "journal.jsonl")}, log={"level": "error"}) as live:
        assert (await live.chat()).status_code == 200
        page = (await live.public.get("/metrics")).text
        assert "draftlane_write_failures_total{" in page or "draftlane_dropped_total{" in page


async def test_retries_after_failures_come_out_again_too(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with engines() as (_, plain):
        said = {
            "backends": two(nobody, plain, {"models": [MODEL], "engine": "vllm"}),
            "policy": {"name": "all-speculative"},
            "journal": {"path": "journal.jsonl"},
            "log": {"level": "error", "decisions": False},
        }
        async with gateway(configured(said, tmp_path)) as live:
            lanes = [(await live.chat()).headers["x-draftlane-lane"] for _ in range(12)]
            retries = [one.retries for one in live.outcomes]
    assert set(lanes) == {"plain"}
    assert (retries[0], retries[-1]) == (1, 0), "the breaker keeps the dead one out, sooner or later"
    status, said_again = run("replay", tmp_path / "journal.jsonl", "--json")
    told = json.loads(said_again)
    assert (status, told["different"], told["decisions"]) == (0, [], 12 + sum(retries))
