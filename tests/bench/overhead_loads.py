"""The loads: programs in C (``overhead/``), the requests they send, and what they report."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = Path(__file__).parent / "overhead"
Report = dict[str, Any]
"""What ``client.c`` prints."""


def compiler() -> str | None:
    """A C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> None:
    """Compile backend and client into ``folder``. Raises CalledProcessError with the compiler's words."""
    cc = compiler()
    assert cc is not None, "no C compiler (cc or gcc)"
    for name in ("backend", "client"):
        subprocess.run([cc, "-O2", "-Wall", "-o", folder / name, SOURCES / f"{name}.c"], check=True)


class Size(NamedTuple):
    """How much of everything."""

    seconds: float = 2.0
    """Of each load with a fixed time."""
    streams: int = 200
    events: int = 200
    """Of each stream, 10 ms apart."""
    held: int = 1000
    """Streams held open while memory is read."""


GAP_MILLISECONDS = 10
"""Between two events of a stream: 200 streams are 20,000 events a second."""


def bodies(folder: Path, size: Size) -> None:
    """Write the request bodies."""
    for name, body in {
        "small": _body(1_000),
        "large": _body(100_000),
        "first": _body(1_000, events=1),
        "streams": _body(1_000, events=size.events, gap=GAP_MILLISECONDS),
        "held": _body(1_000, events=100_000, gap=1_000),
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(body, separators=(",", ":")))


def _body(size: int, events: int | None = None, gap: int = 0) -> dict[str, Any]:
    words = "what a gateway adds to a request is measured with words like these ones here "
    prompt = (words * (size // len(words) + 1))[: size - 200]
    body: dict[str, Any] = {
        "model": "stub-model",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0.7,
    }
    if events is None:
        return body | {"max_tokens": 128}
    return body | {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": events, "seed": gap}


class Load(NamedTuple):
    """One way to call the client."""

    body: str
    options: tuple[str, ...]


def loads(size: Size) -> dict[str, Load]:
    """All loads by name."""
    seconds = str(size.seconds)
    return {
        "crowd": Load("small", ("-c", "64", "-d", seconds)),
        "alone": Load("small", ("-c", "1", "-d", str(size.seconds / 2))),
        "first": Load("first", ("-s", "-c", "1", "-d", str(size.seconds / 2))),
        "streams": Load("streams", ("-s", "-c", str(size.streams), "-n", str(size.streams))),
        "large": Load("large", ("-c", "8", "-d", str(size.seconds / 2))),
    }


def start_client(folder: Path, port: int, load: Load, headers: tuple[str, ...]) -> subprocess.Popen[str]:
    """Run the client on the first core (``overhead_targets.pinned``)."""
    options = [word for header in headers for word in ("-H", header)]
    command = [str(folder / "client"), str(port), "-b", str(folder / f"{load.body}.json"), *load.options, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    return process


def report(process: subprocess.Popen[str]) -> Report:
    """What a client said at its end. Raises RuntimeError when it said nothing."""
    said, _ = process.communicate(timeout=120)
    if process.returncode != 0:
        raise RuntimeError(f"the client ended with {process.returncode}")
    told: Report = json.loads(said)
    return told
