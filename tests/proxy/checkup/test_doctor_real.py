"""The doctor on real llama.cpp engines: a sound pair of lanes passes, swapped lanes do not."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy import llama
from proxy.cli import app

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(600)]


def examined(*arguments: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", *arguments, "--json"])
    findings = json.loads(result.stdout)["findings"]
    return result.exit_code, {(finding["check"], finding["about"]): finding for finding in findings}


@pytest.mark.skipif(llama.missing() is not None, reason="needs the demo extra")
def test_real_twins_pass_and_swapped_lanes_are_found_out() -> None:
    weights = str(llama.weights())
    with llama.start(llama.Tuning(kind="ngram-mod")) as fast, llama.start(llama.Tuning(kind="plain")) as plain:
        code, found = examined("--speculative", fast.url, "--plain", plain.url)
        assert code == 0, found
        assert found["speculation on", "speculative-1"]["severity"] == "fine"
        assert found["plain is plain", "plain-1"]["severity"] == "fine"
        assert found["disconnect", "plain-1"]["severity"] in ("fine", "warning")
        assert found["metrics", "speculative-1"]["severity"] == "fine"

        code, found = examined("--speculative", plain.url, "--plain", fast.url)
        assert code == 1
        assert found["speculation on", "speculative-1"]["severity"] == "fault"
        assert found["plain is plain", "plain-1"]["severity"] == "fault"

    code, found = examined("--target", weights, "--draft", weights)
    assert code == 1
    assert found["vocabulary", ""]["severity"] == "fine"
    assert found["size ratio", ""]["severity"] == "fault"
