"""Planted faults in lanes. The engines here are SIMULATED: a scripted HTTP server that speaks vLLM's recorded shapes."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.checkup import visit
from proxy.cli import app

REFUSED = "min_p and logit_bias are not yet supported with speculative decoding."


@dataclass
class Script:
    """How a simulated engine behaves; the defaults are a sound speculative vLLM."""

    speculates: bool = True
    model: str = "twin"
    context: int = 8192
    template: str = "<|{role}|>{content}"
    weights: str = "the same weights"
    shift: int = 0
    """Added to token ids: another tokenizer."""
    accepts: float = 0.8
    metrics: bool = True
    moves: bool = True
    tells: bool = True
    counts_usage: bool = True
    refuses: tuple[str, ...] = ("min_p", "logit_bias")
    deaf: bool = False
    """Goes on generating when the client has left."""
    totals: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("tokens", "drafts", "drafted", "kept"), 0.0)
    )
    running: int = 0

    def page(self) -> str:
        """The metrics page."""
        label = '{engine="0",model_name="twin"}'
        lines = [f"vllm:num_requests_running{label} {self.running}", f"vllm:num_requests_waiting{label} 0"]
        lines.append(f"vllm:generation_tokens_total{label} {self.totals['tokens']}")
        names = {"drafts": "drafts", "drafted": "draft_tokens", "kept": "accepted_tokens"}
        if self.speculates:
            lines += [f"vllm:spec_decode_num_{name}_total{label} {self.totals[key]}" for key, name in names.items()]
            lines.append('vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 1')
        return "\n".join(lines) + "\n"

    def generated(self, tokens: int) -> None:
        """Counters after an answer."""
        if not self.moves:
            return
        self.totals["tokens"] += tokens
        if self.speculates:
            self.totals["drafts"] += tokens / 4
            self.totals["drafted"] += tokens
            self.totals["kept"] += tokens * self.accepts


class Face(BaseHTTPRequestHandler):
    """The HTTP face of a script."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def script(self) -> Script:
        """How its engine behaves."""
        assert isinstance(self.server, Simulated)
        return self.server.script

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say(self, answer: object, status: int = 200) -> None:
        self.send(status, json.dumps(answer).encode())

    def do_GET(self) -> None:
        card = {"id": self.script.model, "object": "model", "owned_by": "vllm", "max_model_len": self.script.context}
        if self.path == "/metrics" and self.script.metrics:
            self.send(200, self.script.page().encode(), "text/plain")
        elif self.path == "/v1/models":
            self.say({"object": "list", "data": [card]})
        elif self.path == "/version":
            self.say({"version": "0.32.0"})
        else:
            self.say({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize":
            self.say({"tokens": ids(self.script, asked), "count": 1, "max_model_len": self.script.context})
        elif hit := [name for name in self.script.refuses if asked.get(name)]:
            error = {"message": REFUSED, "type": "BadRequestError", "param": hit[0], "code": 400}
            self.say({"error": error}, 400)
        elif asked.get("stream"):
            self.stream(asked)
        else:
            self.say(whole_answer(self.script, asked))

    def stream(self, asked: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        endless, self.script.running = asked.get("ignore_eos", False), self.script.running + 1
        try:
            for _ in range(400 if endless else 8):
                self.event({"choices": [{"index": 0, "text": " word" * 4}]})
                time.sleep(0.02 if endless else 0)
            self.script.generated(32)
            self.event(last_event(self.script))
            self.wfile.write(b"data: [DONE]\n\n")
        finally:
            self.script.running -= 1

    def event(self, what: object) -> None:
        try:
            self.wfile.write(b"data: " + json.dumps(what).encode() + b"\n\n")
        except OSError:
            if not self.script.deaf:
                raise


def ids(script: Script, asked: dict[str, Any]) -> list[int]:
    """Token ids: here one per character."""
    if "messages" in asked:
        written = "".join(script.template.format(**message) for message in asked["messages"])
    else:
        written = asked["prompt"]
    return [ord(letter) + script.shift for letter in written]


def whole_answer(script: Script, asked: dict[str, Any]) -> dict[str, Any]:
    """What one gets without a stream; the text depends on weights and question."""
    prompt = len(ids(script, asked))
    said = f"{script.weights} say: {str(asked.get('prompt'))[::-1]}"
    choice = {"index": 0, "text": said, "message": {"role": "assistant", "content": said}, "finish_reason": "length"}
    usage = {"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2}
    return {"object": "text_completion", "choices": [choice], "usage": usage}


def last_event(script: Script) -> dict[str, Any]:
    """The usage chunk, with the engine's own figures where it is started for that."""
    event: dict[str, Any] = {"choices": []}
    if script.counts_usage:
        event["usage"] = {"prompt_tokens": 9, "completion_tokens": 32, "total_tokens": 41}
    if script.tells and script.speculates:
        kept = int(32 * script.accepts)
        event["metrics"] = {"speculative_decoding": {"num_draft_tokens": 32, "num_accepted_draft_tokens": kept}}
    return event


class Simulated(ThreadingHTTPServer):
    """A simulated engine. Clients that hang up are part of the examination, not worth a traceback."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Face)
        self.script = script

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The URL of a simulated engine."""
    with Simulated(script) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


SOUND = Script()
PLAIN = Script(speculates=False, tells=False, refuses=())


def examined(fast: Script, plain: Script | None) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Exit status, worst severity by check, and the whole report."""
    fresh = dict.fromkeys(fast.totals, 0.0)
    with ExitStack() as stack:
        arguments = ["--speculative", stack.enter_context(serving(replace(fast, totals=dict(fresh))))]
        if plain is not None:
            arguments += ["--plain", stack.enter_context(serving(replace(plain, totals=dict(fresh))))]
        result = CliRunner().invoke(app, ["doctor", *arguments, "--json"])
    report: dict[str, Any] = json.loads(result.stdout)
    order = ("fine", "not checked", "warning", "fault")
    worst: dict[str, str] = {}
    for finding in report["findings"]:
        held = worst.get(finding["check"], "fine")
        worst[finding["check"]] = max(held, finding["severity"], key=order.index)
    return result.exit_code, worst, report


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """These engines move their counters at once, so nobody has to wait for them to settle."""
    monkeypatch.setattr(visit, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(visit, "HANG_UP_SECONDS", 1.0)


def test_a_sound_pair_of_lanes_passes_every_check() -> None:
    code, worst, report = examined(SOUND, PLAIN)
    assert code == 0
    assert report["sound"] is True
    assert {check: severity for check, severity in worst.items() if severity not in ("fine", "not checked")} == {}
    assert worst["acceptance"] == "fine"
    assert worst["disconnect"] == "fine"
    assert worst["same answers"] == "fine"


PLANTED: dict[str, tuple[Script, Script, str, str]] = {
    "a plain engine poses as speculative": (PLAIN, PLAIN, "speculation on", "fault"),
    "the plain lane speculates": (SOUND, SOUND, "plain is plain", "fault"),
    "another model": (SOUND, replace(PLAIN, model="cousin"), "same model", "fault"),
    "another context length": (SOUND, replace(PLAIN, context=4096), "same context", "fault"),
    "another chat template": (SOUND, replace(PLAIN, template="[{role}] {content}"), "same template", "fault"),
    "another tokenizer": (SOUND, replace(PLAIN, shift=7), "same tokenizer", "fault"),
    "other weights under the same name": (SOUND, replace(PLAIN, weights="A stranger"), "same answers", "fault"),
    "drafts accepted by chance only": (replace(SOUND, accepts=0.01), PLAIN, "acceptance", "fault"),
    "low acceptance": (replace(SOUND, accepts=0.25), PLAIN, "acceptance", "warning"),
    "no metrics page": (replace(SOUND, metrics=False), PLAIN, "metrics", "fault"),
    "counters that stand still": (replace(SOUND, moves=False), PLAIN, "metrics", "fault"),
    "no per-request metrics": (replace(SOUND, tells=False), PLAIN, "per-request metrics", "warning"),
    "no usage in streams": (SOUND, replace(PLAIN, counts_usage=False), "usage in streams", "warning"),
    "a refusal nobody expects": (replace(SOUND, refuses=("min_p", "logprobs")), PLAIN, "refusals", "warning"),
    "the plain lane refuses because of drafts": (SOUND, replace(PLAIN, refuses=("min_p",)), "refusals", "fault"),
    "generates on for nobody": (replace(SOUND, deaf=True), PLAIN, "disconnect", "fault"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_fault_is_found_and_comes_with_a_fix(name: str) -> None:
    fast, plain, check, severity = PLANTED[name]
    code, worst, report = examined(fast, plain)
    assert worst[check] == severity
    assert code == (1 if "fault" in worst.values() else 0)
    found = [finding for finding in report["findings"] if finding["check"] == check and finding["severity"] == severity]
    assert all(finding["fix"] and finding["sentence"] for finding in found)


def test_a_lane_that_does_not_answer_is_a_fault_and_leaves_the_rest_unchecked() -> None:
    with serving(SOUND) as url:
        result = CliRunner().invoke(app, ["doctor", "--speculative", url, "--plain", "http://127.0.0.1:9", "--json"])
    report = json.loads(result.stdout)
    severities = {finding["check"]: finding["severity"] for finding in report["findings"]}
    assert result.exit_code == 1
    assert severities["reachable"] == "fault"
    assert severities["same model"] == "not checked"


def test_one_lane_alone_is_examined_and_its_refusals_have_nowhere_to_go() -> None:
    code, worst, _ = examined(SOUND, None)
    assert code == 0
    assert worst["refusals"] == "warning"
    assert worst["same answers"] == "not checked"


def test_the_lanes_of_a_configuration_file_are_examined(tmp_path: Any) -> None:
    with serving(replace(SOUND, totals=dict.fromkeys(SOUND.totals, 0.0))) as fast, serving(PLAIN) as plain:
        file = tmp_path / "draftlane.toml"
        lanes = [
            f'[[backends]]\nurl = "{url}"\nlane = "{lane}"\n' for url, lane in ((fast, "speculative"), (plain, "plain"))
        ]
        file.write_text("\n".join(lanes))
        result = CliRunner().invoke(app, ["doctor", "-c", str(file)], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    assert "speculative-1" in result.output
    assert "not checked" not in result.output.splitlines()[-1] or "fine" in result.output.splitlines()[-1]


def test_two_servers_that_cut_text_differently_are_no_pair() -> None:
    with serving(SOUND) as target, serving(replace(PLAIN, shift=1)) as draft:
        result = CliRunner().invoke(app, ["doctor", "--target", target, "--draft", draft, "--json"])
    found = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 1
    assert found["probe texts"]["severity"] == "fault"
    assert "Vietnamese" in found["probe texts"]["sentence"]
    assert found["vocabulary"]["severity"] == "not checked"
