"""What is measured: the gateway with all features on, and for comparison nginx and vllm-router where they are installed."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from tests.bench.compiled import ROOT, importing

ROUTER = Path(os.environ.get("VLLM_ROUTER", Path.home() / ".cache/draftlane-bench/router/bin/vllm-router"))
"""``python3 -m venv ~/.cache/draftlane-bench/router && …/bin/pip install vllm-router==0.1.17``"""
KEY = "sk-overhead"
START_SECONDS = 60.0


class Target(NamedTuple):
    """Something that stands before the backend, running."""

    name: str
    port: int
    pid: int | None
    """None: nothing stands before the backend."""
    headers: tuple[str, ...] = ()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def pinned(process: subprocess.Popen[str]) -> None:
    """Move a process to the last core; client and backend have the first one."""
    os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})


@contextlib.contextmanager
def backend(folder: Path) -> Iterator[int]:
    """The backend, on the first core; its port."""
    process = subprocess.Popen([folder / "backend", "0"], stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    assert process.stdout is not None
    with _ending(process), process.stdout as said:
        yield int(said.readline())


def installed() -> dict[str, bool]:
    """Which references are here."""
    return {"nginx": _nginx() is not None, "vllm-router": ROUTER.exists()}


def _nginx() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextlib.contextmanager
def running(name: str, folder: Path, upstream: int, code: Path = ROOT) -> Iterator[Target]:
    """Start ``draftlane``, ``nginx`` or ``vllm-router`` before the backend at ``upstream``.

    ``code``: where draftlane is imported from; a clone by default.
    """
    port = free_port()
    start = partial(_draftlane, code) if name == "draftlane" else _REFERENCES[name]
    command, headers, environment = start(folder, port, upstream)
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, text=True)
    pinned(process)
    with _ending(process):
        _await_port(process, port)
        yield Target(name, port, process.pid, headers)


Command = tuple[list[str], tuple[str, ...], Mapping[str, str]]


def _draftlane(code: Path, folder: Path, port: int, upstream: int) -> Command:
    """Auth, journal, decision log, metrics, default policy, two lanes."""
    key = sha256(KEY.encode()).hexdigest()
    lanes = "".join(
        f'[[backends]]\nname = "{lane}"\nlane = "{lane}"\nurl = "http://127.0.0.1:{upstream}"\n'
        for lane in ("speculative", "plain")
    )
    file = folder / "draftlane.toml"
    file.write_text(
        f'[server]\nport = {port}\n[keys.sha256]\nbench = "{key}"\n[journal]\npath = "journal.jsonl"\n{lanes}',
    )
    command = [sys.executable, "-m", "proxy", "serve", "-c", str(file)]
    return command, (f"Authorization: Bearer {KEY}",), importing(code)


def _nginx_command(folder: Path, port: int, upstream: int) -> Command:
    """One worker, keep-alive to the backend, streams passed on unbuffered: the practical limit."""
    file = folder / "nginx.conf"
    file.write_text(f"""
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err warn; worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
  access_log off; client_body_buffer_size 2m; client_max_body_size 64m; keepalive_requests 1000000000; tcp_nodelay on;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 2048; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
""")
    nginx = _nginx()
    assert nginx is not None
    return [nginx, "-c", str(file)], (), os.environ


def _router(folder: Path, port: int, upstream: int) -> Command:
    """One thread, as the others have one core."""
    options = {
        "--host": "127.0.0.1",
        "--port": port,
        "--worker-urls": f"http://127.0.0.1:{upstream}",
        "--policy": "round_robin",
        "--prometheus-port": free_port(),
        "--prometheus-host": "127.0.0.1",
        "--log-level": "error",
        "--max-concurrent-requests": 4096,
    }
    command = [str(ROUTER), *(str(word) for pair in options.items() for word in pair)]
    return command, (), os.environ | {"RAYON_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "1"}


_REFERENCES = {"nginx": _nginx_command, "vllm-router": _router}


@contextlib.contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_port(process: subprocess.Popen[str], port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{process.args!r} does not listen")


# --- what processes used ---


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    pids = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                pids += family(int(child))
    return pids


def cpu_seconds(pid: int | None) -> float:
    """On-CPU time of a process family so far (threads that ended are not in it)."""
    total = 0
    for one in [] if pid is None else family(pid):
        for task in Path(f"/proc/{one}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def memory_bytes(pid: int) -> int:
    """Resident memory of a process family, shared pages counted by their share (PSS)."""
    total = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total
