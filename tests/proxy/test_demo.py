"""The demonstration: its traffic, its tables at two widths, and when it counts as a success."""

import asyncio
import os
import re
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from policies.decision import NEVER
from proxy.commands.demo import succeeded
from proxy.demo.table import UNKNOWN, WIDE, caption, tables
from proxy.demo.traffic import EACH, Answered, Request, requests
from proxy.outcome import Outcome

ROOT = Path(__file__).parents[2]


def outcome(app: str, workload: str, lane: str, **told: object) -> Outcome:
    bare = Outcome("id", "chat", "m", app, 200, "ok", 1.0, lane, workload, lane)
    return replace(bare, **told)


def day() -> list[Outcome]:
    """Rows as wide as they get: long names, large counts, every figure known or none of them."""
    return [
        *(
            outcome(
                app, workload, lane, predicted_tokens=1024.4, completion_tokens=1024, ratio=12.345, break_even=0.0123,
                ttft_seconds=12.3456, tpot_seconds=0.1234, draft_tokens=20_000, accepted_tokens=15_000,
                tokens_per_step=3.75,
            )
            for app in ("coding-assistant", "writing-assistant", "summariser")
            for workload in ("decode-heavy", "prompt-heavy")
            for lane in ("speculative", "plain")
        ),
        outcome("summariser", "decode-heavy", "plain", break_even=NEVER),
    ]  # fmt: skip


VERDICTS = [
    {"application": "coding-assistant", "verdict": "pays"},
    {"application": "writing-assistant", "verdict": "does not pay"},
    {"application": "writing-assistant", "verdict": "unknown"},
]


def shown(outcomes: list[Outcome], width: int, simulated: bool = False) -> str:
    page = StringIO()
    console = Console(width=width, file=page, force_terminal=False)
    for table in tables(outcomes, VERDICTS, simulated, width):
        console.print(table)
    return page.getvalue()


@pytest.mark.parametrize("width", [80, WIDE, 120, 200])
def test_no_figure_is_cut_short_at_any_width(width: int) -> None:
    text = shown(day(), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for figure in (
        "1024/1024",
        "12.35",
        "0.01",
        "12346",
        "123.4",
        "0.75 (20000)",
        "3.75",
        "does not pay",
        "coding-assistant",
    ):
        assert figure in text


def test_narrow_terminals_get_two_tables_and_wide_ones_get_one() -> None:
    assert len(tables(day(), VERDICTS, False, 80)) == 2
    assert len(tables(day(), VERDICTS, False, WIDE)) == 1


def test_simulated_engines_are_called_so_in_every_title() -> None:
    for width in (80, 120):
        assert all("SIMULATED" in str(table.title) for table in tables(day(), VERDICTS, True, width))
        assert "SIMULATED" not in shown(day(), width)


def test_what_is_not_known_is_no_number() -> None:
    text = shown([outcome("a", "prompt-heavy", "plain")], 120)
    row = next(line.split() for line in text.splitlines() if "plain" in line)
    assert row == ["plain", "1", "–/–", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, "(0)", UNKNOWN, "unknown"]


def test_rows_are_medians_and_acceptance_is_over_all_tokens() -> None:
    rows = [
        outcome("a", "c", "speculative", completion_tokens=tokens, predicted_tokens=10.0, draft_tokens=drafted,
                accepted_tokens=accepted, tokens_per_step=2.0)
        for tokens, drafted, accepted in ((10, 100, 90), (20, 300, 30), (900, 0, 0))
    ]  # fmt: skip
    text = shown(rows, 120)
    assert "10/20" in text
    assert "0.30 (400)" in text


def test_a_bar_that_is_never_reached_is_said_in_words() -> None:
    never = outcome("a", "c", "plain", break_even=NEVER)
    assert "never" in shown([never], 120)
    assert " 0.10 " in shown([never, replace(never, break_even=0.1)], 120), "not the mean of the two"


def test_the_caption_counts_the_requests_before_anything_was_known() -> None:
    assert "1 early request went" in caption([outcome("a", "c", "plain"), outcome("a", "c", "plain", break_even=0.1)])
    assert "2 early requests went" in caption([outcome("a", "c", "plain")] * 2)
    assert "early" not in caption([outcome("a", "c", "plain", break_even=0.1)])


def test_three_applications_ask_ten_times_each_with_and_without_streaming() -> None:
    asked = requests()
    assert [len(some) for some in asked] == [EACH] * 3
    assert [some[0].app for some in asked] == ["coding-assistant", "writing-assistant", "summariser"]
    for some in asked:
        assert {one.stream for one in some} == {True, False}
        assert len({one.prompt for one in some}) == EACH, "a repeated prompt would flatter n-gram drafts"
    coding, _, summaries = asked
    assert all("```" in one.prompt for one in coding)
    assert min(len(one.prompt) for one in summaries) > 20 * max(one.max_tokens for one in summaries)


def answered(lane: str | None, error: str | None = None) -> Answered:
    return Answered(Request("a", "p", 1, 0.0, False), lane, error)


@pytest.mark.parametrize(
    ("answers", "well"),
    [
        ([answered("speculative"), answered("plain")], True),
        ([answered("speculative"), answered("speculative")], False),
        ([answered("speculative"), answered("plain"), answered(None, "APIError: no")], False),
        ([answered("speculative"), answered(None)], False),
        ([], False),
    ],
)
def test_it_succeeds_only_when_all_went_well_and_both_lanes_were_used(answers: list[Answered], well: bool) -> None:
    assert succeeded(answers) is well


async def demonstrate(folder: Path, *words: str) -> asyncio.subprocess.Process:
    """The command where the weights cannot be put together: their folder is a file."""
    blocked = folder / "blocked"
    blocked.write_text("")
    environment = os.environ | {"XDG_CACHE_HOME": str(blocked), "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", "demo", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment, cwd=folder,
        preexec_fn=hearing_interrupts,
    )  # fmt: skip


def hearing_interrupts() -> None:
    """A suite that a script runs in the background is deaf to SIGINT, and so would be what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def test_without_a_real_engine_it_goes_on_simulated_and_says_so(tmp_path: Path) -> None:
    """Both ways of ending, side by side: a run takes its time."""
    staying, leaving = await demonstrate(tmp_path), await demonstrate(tmp_path, "--once")
    said = await until_it_stays(staying)
    staying.send_signal(signal.SIGINT)
    rest, _ = await staying.communicate()
    once, _ = await leaving.communicate()
    assert (staying.returncode, leaving.returncode) == (0, 0), said + once.decode()
    for text in (said + rest.decode(), once.decode()):
        assert "No real engine here" in text
        assert "Going on with SIMULATED engines" in text
        assert "30/30" in text
        assert "What went where (SIMULATED engines)" in text
        assert "How fast (SIMULATED engines)" in text
        assert max(map(len, text.splitlines())) <= 80
        assert not [word for word in ("…", "failed", "Traceback") if word in text]
    assert re.search(r"goes on at http://127\.0\.0\.1:\d+/v1 ", said)
    assert "goes on at" not in once.decode()


async def until_it_stays(process: asyncio.subprocess.Process) -> str:
    """What it says until it waits for Ctrl-C."""
    assert process.stdout is not None
    said = ""
    while "Ctrl-C ends everything" not in said:
        line = await process.stdout.readline()
        assert line, said
        said += line.decode()
    return said
