import io
import json
import logging
import os
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.log import Log
from proxy.outcome import Outcome

DONE = Outcome(
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
    ttft_seconds=0.3123456789,
    tpot_seconds=0.0121,
    reason="break-even",
    policy="break-even",
    ratio=0.42,
    break_even=0.07,
    predicted_tokens=150.0,
    completion_tokens=200,
    tokens_per_step=2.41,
    draft_tokens=300,
    accepted_tokens=120,
    acceptance=0.4,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(*outcomes: Outcome, style: str | None = None, stream: io.StringIO | None = None) -> list[str]:
    stream = stream or io.StringIO()
    log = Log(stream, style)
    log.start()
    for outcome in outcomes:
        log.ended([outcome])
    log.close()
    return stream.getvalue().removesuffix("\n").split("\n")


class Hearing:
    """The standard library's log, heard by a ``Log`` while the block lasts."""

    def __enter__(self) -> "Hearing":
        self.stream = io.StringIO()
        self.log = Log(self.stream)
        self.log.install("debug")
        self.log.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self.said = [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_line_tells_the_decision_and_what_came_of_it() -> None:
    (line,) = map(json.loads, told(DONE))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info",
        "event": "request",
        "id": "r1",
        "surface": "chat",
        "model": "qwen",
        "app": "coder",
        "lane": "speculative",
        "class": "decode-heavy",
        "backend": "spec-1",
        "status": 200,
        "outcome": "ok",
        "latency_seconds": 3.0,
        "ttft_seconds": 0.3123456789,
        "tpot_seconds": 0.0121,
        "reason": "break-even",
        "policy": "break-even",
        "ratio": 0.42,
        "break_even": 0.07,
        "predicted_tokens": 150.0,
        "completion_tokens": 200,
        "tokens_per_step": 2.41,
        "draft_tokens": 300,
        "accepted_tokens": 120,
        "acceptance": 0.4,
    }


def test_what_is_not_known_is_not_said() -> None:
    (line,) = map(json.loads, told(replace(DONE, lane="", workload="", backend="", ratio=None, status=429,
                                                 outcome="rejected", fault="overloaded")))  # fmt: skip
    assert not line.keys() & {"lane", "class", "backend", "ratio"}
    assert (line["level"], line["fault"]) == ("warning", "overloaded")


def test_people_at_a_terminal_get_text() -> None:
    (line,) = told(DONE, stream=Terminal())
    assert line[9:] == (
        "INFO    r1 coder qwen  → spec-1 (speculative decode-heavy: break-even, ratio 0.42 to 0.07)  200 ok  "
        "3.00 s, 200 tokens of 150 predicted, first after 0.312 s, 12.1 ms each, 2.41 a step, accepted 120 of 300"
    )


def test_text_tells_of_failures_too() -> None:
    failed = replace(DONE, backend="", lane="", status=502, outcome="backend_error", fault="closed", retries=1,
                           completion_tokens=None, ttft_seconds=None, tpot_seconds=None, tokens_per_step=None,
                           draft_tokens=None)  # fmt: skip
    left = replace(failed, status=0, outcome="cancelled", fault=None, retries=0)
    lines = told(failed, left, style="text")
    assert lines[0][9:] == "WARNING r1 coder qwen  502 backend_error (closed) after 2 attempts  3.00 s"
    assert lines[1][9:] == "INFO    r1 coder qwen  - cancelled  3.00 s"


@given(st.text(max_size=300), st.sampled_from(["json", "text"]))
def test_a_name_of_a_clients_making_stays_in_its_line_and_short(name: str, style: str) -> None:
    (line,) = told(replace(DONE, app=name, model=name), style=style)
    assert line.isprintable() or style == "json"
    assert "\x1b" not in line
    if style == "json":
        assert json.loads(line).get("app", "") == name[:200]


def test_the_standard_log_is_in_the_same_form() -> None:
    with Hearing() as hearing:
        logging.getLogger("some.library").info("%d of %s", 3, "five")
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("some.library").exception("it failed")
    info, error = hearing.said
    assert (info["level"], info["event"], info["logger"], info["message"]) == (
        "info",
        "log",
        "some.library",
        "3 of five",
    )
    assert error["level"] == "error"
    assert error["exception"].startswith("Traceback")
    assert "ValueError: broken" in error["exception"]


def test_arguments_are_read_when_they_are_logged() -> None:
    changing = [1]
    with Hearing() as hearing:
        logging.getLogger("x").info("%s", changing)
        changing.append(2)
    assert hearing.said[0]["message"] == "[1]"


@pytest.mark.parametrize(
    ("message", "argument", "line"),
    [("%d", "text", "%d (arguments do not fit)"), ("%s", "\ud800", "?")],
)
def test_what_cannot_be_said_is_still_a_line(message: str, argument: str, line: str) -> None:
    with Hearing() as hearing:
        logging.getLogger("x").info(message, argument)
    assert hearing.said[0]["message"] == line


@pytest.mark.parametrize(
    "message",
    [
        "header authorization: Bearer sk-SECRET",
        "{'x-api-key': 'SECRET', 'a': 1}",
        'api_key="SECRET"',
        "cannot connect to redis://user:SECRET@host:6379/0",
        "redis://:SECRET@host",
    ],
)
def test_secrets_are_blanked_wherever_they_come_from(message: str) -> None:
    with Hearing() as hearing:
        logging.getLogger("x").warning(message)
    assert "SECRET" not in hearing.said[0]["message"]
    assert "***" in hearing.said[0]["message"]


def test_closing_gives_the_standard_log_back() -> None:
    before = logging.getLogger().handlers[:]
    with Hearing() as hearing:
        assert logging.getLogger().handlers == [hearing.log.handler]
    assert logging.getLogger().handlers == before


def test_decisions_may_be_switched_off() -> None:
    stream = io.StringIO()
    log = Log(stream, decisions=False)
    log.start()
    log.ended([DONE])
    log.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("style", "words"), [("json", '"event":"dropped","lines":2'), ("text", "WARNING 2 lines")])
def test_a_slow_reader_costs_lines_and_no_request(style: str, words: str) -> None:
    stream = io.StringIO()
    log = Log(stream, style, bound=3)
    for _ in range(5):
        log.ended([DONE])
    log.start()
    log.close()
    assert log.dropped == 2
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert words in lines[3]


def test_a_full_pipe_holds_up_only_the_thread() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    log = Log(stream, bound=100_000)
    log.start()
    for _ in range(2000):  # far more than a pipe takes
        log.ended([DONE])
    lines: list[str] = []
    with os.fdopen(reader) as file:
        reading = threading.Thread(target=lambda: lines.extend(file))
        reading.start()
        log.close(wait_seconds=30)
        stream.close()
        reading.join()
    assert len(lines) == 2000
    assert log.dropped == 0


def test_a_closed_stream_is_survived() -> None:
    stream = io.StringIO()
    log = Log(stream)
    log.start()
    stream.close()
    log.ended([DONE])
    log.close()
    assert log.dropped == 1


def test_a_lone_surrogate_is_no_end_of_the_log() -> None:
    assert json.loads(told(replace(DONE, model="\ud800"))[0])["model"] == "?"
