"""What a request and a streamed event cost, counted in calls: the same on a busy machine and on a quiet one.

A whole gateway runs on a loop of this thread, with keys, journal, metrics and the decision log; the client and the backend
are plain sockets in other threads, so that ``sys.setprofile`` counts the gateway's work and nothing else.

    python -m tests.wire_cost.counting            # what it is now
    python -m tests.wire_cost.counting --write    # and allow just that from now on
"""

import asyncio
import contextlib
import io
import json
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, Any, NamedTuple

import uvloop

from proxy.config import Config, load
from proxy.serving import serving

ALLOWED = Path(__file__).with_name("allowed.json")
ROOT = str(Path(__file__).parents[2])
WARM_UP, REQUESTS, STREAMS, EVENTS = 60, 100, 4, 250
PASSES = 8
"""Of so many hundreds of requests the cheapest counts: the heartbeat and what is learnt now and then fall into some of them."""
KEY = "sk-counted"

TEXT = " ".join(["word"] * 150)
DOCUMENT = json.dumps({
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 200, "completion_tokens": 150, "total_tokens": 350},
}).encode()  # fmt: skip
USAGE = b'{"id":"c","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":250,"total_tokens":450}}'
REQUEST = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "temperature": 0.7, "max_tokens": 300}


class Count(NamedTuple):
    """Calls of functions in Python (the gateway's and uvicorn's own), and of functions in C made by them."""

    python: float
    c: float


class Counts(NamedTuple):
    """What is guarded."""

    request: Count
    """One answer in one document."""
    event: Count
    """One event of a stream that is a read of its own."""
    kept_blocks: float
    """Memory blocks that each event leaves behind while its stream runs."""
    most: list[str]
    """The functions called most in a request, for whoever has to look."""


class Calls:
    """Counts calls of this thread while ``counting``."""

    def __init__(self) -> None:
        self.python: Counter[CodeType] = Counter()
        self.c = 0
        self._ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, what: str, _: object) -> None:
        """See ``sys.setprofile``."""
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = any(part in code.co_filename for part in _OURS)
        if ours and what == "call":
            self.python[code] += 1
        elif ours and what == "c_call":
            self.c += 1

    def per(self, times: float) -> Count:
        """The mean."""
        return Count(round(sum(self.python.values()) / times, 2), round(self.c / times, 2))


_OURS = (f"{ROOT}/proxy/", f"{ROOT}/policies/", "/uvicorn/", "<string>")
"""The last are the constructors of named tuples."""


@contextmanager
def counting(calls: Calls) -> Iterator[None]:
    """Count the calls of this thread."""
    sys.setprofile(calls)
    try:
        yield
    finally:
        sys.setprofile(None)


# --- the other two, in threads of their own ---


@contextmanager
def backend(paced: threading.Semaphore) -> Iterator[int]:
    """A backend, each event of whose streams waits for a permit; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=_serve, args=(listener.accept()[0], paced), daemon=True))
                threads[-1].start()

    threads.append(threading.Thread(target=listen, daemon=True))
    threads[0].start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)
        listener.close()


def _serve(line: socket.socket, paced: threading.Semaphore) -> None:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with line, line.makefile("rb") as said:
        while head := _head(said):
            if head.startswith(b"GET"):  # the first look: this backend tells nothing of itself
                line.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                continue
            length = next(int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:"))
            if b'"stream":true' not in said.read(length):
                line.sendall(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(DOCUMENT), DOCUMENT)
                )
                continue
            line.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for number in range(EVENTS):
                paced.acquire()
                line.sendall(_chunk(_event(number)))
            paced.acquire()
            line.sendall(_chunk(USAGE) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _head(said: IO[bytes]) -> bytes:
    """The lines of a request's head; empty at the end of the connection."""
    lines = []
    while (line := said.readline()) not in (b"\r\n", b""):
        lines.append(line)
    return b"".join(lines)


def _event(number: int) -> bytes:
    delta = b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%d "}}]}'
    return delta % number


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\ndata: %b\n\n\r\n" % (len(payload) + 8, payload)


class Client:
    """One connection that waits for each answer; as a thing to run in a thread."""

    def __init__(self, port: int, paced: threading.Semaphore) -> None:
        self._line = socket.create_connection(("127.0.0.1", port))
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._paced = paced

    def documents(self, times: int) -> None:
        """So many requests."""
        for _ in range(times):
            self._ask(REQUEST)
            got = b""
            while not got.endswith(b"}}"):
                got += self._line.recv(65536)
            assert got.startswith(b"HTTP/1.1 200"), got[:400]

    def open_stream(self) -> None:
        """Ask for a stream, and read its first events."""
        self._ask(REQUEST | {"stream": True, "stream_options": {"include_usage": True}})
        self.events(50)

    def events(self, times: int) -> None:
        """So many events, each fetched before the next one is sent."""
        for _ in range(times):
            self._paced.release()
            got = b""
            while b"\n\n" not in got:
                got += self._line.recv(65536)
                assert got

    def end_stream(self) -> None:
        """The rest."""
        self._paced.release()
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            got += self._line.recv(65536)

    def _ask(self, request: dict[str, Any]) -> None:
        body = json.dumps(request, separators=(",", ":")).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\naccept: application/json\r\ncontent-type: application/json\r\nuser-agent: OpenAI/Python 3.0.0\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
        self._line.sendall(head.encode() + body)

    def close(self) -> None:
        """Hang up."""
        self._line.close()


# --- the measurement ---


def _config(folder: Path, url: str) -> Config:
    """All features on; looks at the backends are left to the start, they are not on a request's way."""
    file = folder / "draftlane.toml"
    lanes = (f'[[backends]]\nurl = "{url}"\nlane = "{lane}"\nmodels = ["m"]\n' for lane in ("speculative", "plain"))
    file.write_text(
        f'[server]\nport = 0\n[keys.sha256]\nbench = "{sha256(KEY.encode()).hexdigest()}"\n'
        f'[journal]\npath = "journal.jsonl"\n[watch]\nevery_seconds = 3600\n{"".join(lanes)}'
    )
    return load(file)


async def _counted(config: Config, paced: threading.Semaphore) -> Counts:
    async with serving(config) as (_, ports, _):
        client = Client(ports.public, paced)
        await _away(client.documents, WARM_UP)
        calls = min([await _request_calls(client) for _ in range(PASSES)], key=lambda one: one.python.total())
        event, kept = await _event_counts(client)
        client.close()
        most = [f"{count / REQUESTS:.1f} {code.co_qualname}" for code, count in calls.python.most_common(15)]
        return Counts(calls.per(REQUESTS), event, kept, most)


async def _request_calls(client: Client) -> Calls:
    calls = Calls()
    with counting(calls):
        await _away(client.documents, REQUESTS)
    return calls


async def _event_counts(client: Client) -> tuple[Count, float]:
    calls, kept, times = Calls(), 0, EVENTS - 50
    for _ in range(STREAMS):
        await _away(client.open_stream)
        before = sys.getallocatedblocks()
        with counting(calls):
            await _away(client.events, times)
        kept += sys.getallocatedblocks() - before
        await _away(client.end_stream)
    return calls.per(STREAMS * times), round(kept / (STREAMS * times), 2)


async def _away(work: Callable[..., None], *words: Any) -> None:
    """Run in a thread while the loop goes on."""
    await asyncio.get_running_loop().run_in_executor(None, work, *words)


def counted() -> Counts:
    """Count on uvloop, as ``serve`` runs."""
    paced = threading.Semaphore(0)
    with (
        backend(paced) as port,
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),  # the decision log
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_counted(_config(Path(folder), f"http://127.0.0.1:{port}"), paced))


def allowed() -> dict[str, dict[str, float]]:
    """What is allowed now."""
    known: dict[str, dict[str, float]] = json.loads(ALLOWED.read_text())
    return known


def main() -> None:
    """Print the counts; write them down with ``--write``."""
    now = counted()
    print(json.dumps(now._asdict(), indent=1))  # noqa: T201  # a script
    if "--write" in sys.argv[1:]:
        figures = {"request": now.request._asdict(), "event": now.event._asdict()}
        ALLOWED.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
