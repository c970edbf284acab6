"""``draftlane serve`` as a process of its own, before simulated engines."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.cli import main
from proxy.simulated.character import Character
from proxy.simulated.running import simulated
from proxy.version import compiled
from tests.live.lanes import MODEL, PLAIN, engines
from tests.scripted.backend import free_port
from tests.scripted.client import connected, post

ROOT = Path(__file__).parents[2]


class Served:
    """The process, and what it said so far."""

    def __init__(self, process: asyncio.subprocess.Process, cache: Path) -> None:
        self.process = process
        self.cache = cache
        self.said: list[str] = []
        self.port = 0
        self.admin_port = 0

    async def until(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError("it ended: " + "".join(self.said))

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end; its exit status."""
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        _, rest = await self.process.communicate()
        self.said.append(rest.decode())
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def log(self) -> str:
        """All that it said on standard error."""
        return "".join(self.said)


async def started(folder: Path, *words: str) -> Served:
    """``python -m proxy serve`` with these words."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", "serve", *words,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=environment, cwd=folder,
    )  # fmt: skip
    return Served(process, folder / "draftlane")


@contextlib.asynccontextmanager
async def serving(folder: Path, *words: str) -> AsyncIterator[Served]:
    """The process once it listens, on a free port."""
    served = await started(folder, *words, "--port", "0")
    try:
        served.port = int((await served.until(r"listening on http://127\.0\.0\.1:(\d+)"))[1])
        yield served
    finally:
        if served.process.returncode is None:
            served.process.kill()
            await served.process.wait()


async def ask(port: int, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=60) as client:
        said = {"model": MODEL, "max_tokens": 6, "messages": [{"role": "user", "content": "Tell me."}], **more}
        return await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=said)


async def test_two_urls_are_enough_and_a_signal_ends_it_cleanly(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        speculative, plain = await stack.enter_async_context(engines())
        served = await stack.enter_async_context(serving(tmp_path, "--speculative", speculative, "--plain", plain))
        admin_port = int((await served.until(r"dashboard on http://127\.0\.0\.1:(\d+)/dashboard"))[1])
        lanes = {(await ask(served.port, stream=True)).headers["x-draftlane-lane"] for _ in range(4)}
        assert lanes == {"speculative", "plain"}
        key_file = served.cache / "admin.key"
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            url = f"http://127.0.0.1:{admin_port}/admin/state"
            assert (await client.get(url)).status_code == 401
            opened = await client.get(url, headers={"authorization": f"Bearer {key_file.read_text()}"})
            assert [one["lane"] for one in opened.json()["backends"]] == ["speculative", "plain"]
        assert await served.end() == 0
    assert key_file.read_text() not in served.log
    lines = [json.loads(line) for line in served.log.splitlines()]
    assert len([one for one in lines if one["event"] == "request"]) == 4
    assert [one for one in lines if one["level"] not in ("info", "debug")] == []
    assert [one["event"] for one in lines if "from source" in one.get("message", "")] == ["log"] * (not compiled())


@pytest.mark.parametrize(("option", "lane"), [("--speculative", "speculative"), ("--plain", "plain")])
async def test_one_url_is_enough_too(option: str, lane: str, tmp_path: Path) -> None:
    async with simulated(PLAIN) as url, serving(tmp_path, option, url) as served:
        answer = await ask(served.port)
        assert (answer.status_code, answer.headers["x-draftlane-lane"]) == (200, lane)
        assert answer.headers["x-draftlane-reason"] == "only-backend"
        assert await served.end(signal.SIGINT) == 0


async def test_engines_may_come_up_after_the_gateway(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path, "--plain", f"http://127.0.0.1:{port}") as served:
        assert (await ask(served.port)).status_code == 502
        async with simulated(PLAIN, port=port):
            answer = await ask(served.port)
            while answer.status_code != 200:
                await asyncio.sleep(0.05)
                answer = await ask(served.port)
            assert await served.end() == 0


async def test_a_running_stream_is_finished_before_the_end(tmp_path: Path) -> None:
    slow = Character(step_ms=20.0)
    async with simulated(slow) as url, serving(tmp_path, "--plain", url) as served:
        async with connected(served.port) as client:
            body = {
                "model": MODEL,
                "stream": True,
                "max_tokens": 40,
                "ignore_eos": True,
                "messages": [{"role": "user"}],
            }
            await client.send(post(json.dumps(body).encode()))
            answer = await client.head()
            await client.chunk(answer)
            served.process.send_signal(signal.SIGTERM)
            await client.body(answer)
            assert answer.complete
            assert answer.body.endswith(b"data: [DONE]\n\n")
        assert await served.ended() == 0


async def test_a_second_signal_ends_it_at_once_and_visibly(tmp_path: Path) -> None:
    async with simulated(Character(step_ms=20.0)) as url, serving(tmp_path, "--plain", url) as served:
        async with connected(served.port) as client:
            body = {
                "model": MODEL,
                "stream": True,
                "max_tokens": 30_000,
                "ignore_eos": True,
                "messages": [{"role": "user"}],
            }
            await client.send(post(json.dumps(body).encode()))
            answer = await client.head()
            await client.chunk(answer)
            served.process.send_signal(signal.SIGTERM)
            await served.until("1 requests may finish within 60 s")
            served.process.send_signal(signal.SIGTERM)
            await client.body(answer)
            assert not answer.complete
        assert await served.ended() == 0
        assert "cutting 1 running requests" in served.log


CONFIGURATION = """
[[backends]]
name = "fast"
url = "{speculative}"
lane = "speculative"

[[backends]]
url = "{plain}"
lane = "plain"

[policy]
name = "round-robin"

[journal]
path = "kept/journal.jsonl"
"""


async def test_a_file_says_everything_else_and_paths_count_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    async with engines() as (speculative, plain):
        file = folder / "draftlane.toml"
        file.write_text(CONFIGURATION.format(speculative=speculative, plain=plain))
        async with serving(tmp_path, "-c", str(file)) as served:
            told = [(await ask(served.port)).headers["x-draftlane-backend"] for _ in range(4)]
            assert sorted(told) == ["fast", "fast", "plain-1", "plain-1"]
            assert await served.end() == 0
    journal = (folder / "kept/journal.jsonl").read_text().splitlines()
    assert sum(line.startswith('["Decision"') for line in journal) == 4
    assert not served.cache.exists(), "who has a configuration gets no key made"


# -- mistakes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "at least one backend is needed"),
        (("--plain", "engine:8000"), "backends.0.url"),
        (("--plain", "http://user:pw@engine:8000"), "credentials do not belong in the URL"),
        (("--plain", "http://e", "--port", "70000"), "port"),
        (("--plain", "http://e", "--port", "many"), "--port"),
        (("--fast", "http://e"), "--fast"),
        (("-c", "missing.toml"), "missing.toml: No such file"),
        (("-c", "missing.toml", "--plain", "http://e"), "not both"),
        (("--plain", "http://e", "--host", "nowhere.invalid"), "cannot listen on nowhere.invalid:8080"),
    ],
)
def test_the_operators_mistakes_end_with_2_and_a_sentence(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said in mistaken(words, tmp_path, monkeypatch, capsys)


def mistaken(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the command says before it ends with status 2."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["draftlane", "serve", *words])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr().err
    assert left.value.code == 2
    assert "Traceback" not in told
    assert "pw@" not in told
    return told


def test_a_faulty_file_is_told_with_every_fault_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.toml").write_text('[[backends]]\nurll = "http://e"\nlane = "fast"\n\n[server]\nport = "8080"\n')
    told = mistaken(("-c", "bad.toml"), tmp_path, monkeypatch, capsys)
    for place in ("backends.0.urll", "backends.0.lane", "backends.0.url:", "server.port"):
        assert place in told


async def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        served = await started(tmp_path, "--plain", "http://127.0.0.1:9", "--port", str(port))
        assert await served.ended() == 2
    assert served.log == f"server.port: cannot listen on 127.0.0.1:{port}: Address already in use\n"
