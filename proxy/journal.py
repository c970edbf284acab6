"""The log of events on disk: enough to replay every decision.

One JSON array per line, ``["Arrived", field, …]`` in the order of the event's fields. Every file begins with
a ``["Journal", …]`` line (``Opened``); a process that starts again on the same file writes another one, since it
starts with an empty memory. Decisions may be written too, so that a replay can check itself against them.
``docs/journal.md`` describes the format.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from policies.decision import Verdict
from policies.events import Event
from proxy.journal_lines import Lines
from proxy.outbox import Dropped, Outbox

FORMAT = 1
"""Grows only when an old reader would misread a new file; new fields and events do not need it."""


class Opened(NamedTuple):
    """The first line of a file, and of every new life of the process that writes it."""

    format: int = FORMAT
    version: str = ""
    """Version of draftlane that wrote it."""
    settings: str = ""
    """Hash of the settings that the decisions were made under."""
    state: str = "cold"
    """``cold``: nothing was known before this line; ``continues``: the file before this one has the beginning;
    anything else names where the memory came from."""
    at: float = 0.0
    """Seconds since the Unix epoch."""


class JournalError(ValueError):
    """A line that is no event; says which file and line."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(f"{path}:{line}: {why}")
        self.path = path
        self.line = line


Entry = Event | Verdict | Opened | Dropped

NAMES: dict[str, type[tuple[object, ...]]] = {
    **{kind.__name__: kind for kind in (*get_args(Event), *get_args(Verdict))},
    "Journal": Opened,
    "Dropped": Dropped,
}
"""What a line may be, by its first element."""

_EVENTS = frozenset(get_args(Event))


class Journal:
    """Appends events from the loop; a thread writes and rotates.

    The file is opened by the thread, so an unwritable path costs a counter and a log line, never a request.
    ``max_bytes`` is the size at which ``path`` becomes ``path.1``; ``keep`` how many of those stay.
    """

    def __init__(
        self,
        path: Path | str,
        max_bytes: int = 256 * 2**20,
        keep: int = 8,
        *,
        version: str = "",
        settings: str = "",
        state: str = "cold",
        bound: int = 65536,
        retry_seconds: float = 1.0,
    ) -> None:
        self.path = Path(path)
        self._max_bytes = max_bytes
        self._keep = keep
        self._opened = Opened(version=version, settings=settings, state=state)
        self._fd = -1
        self._size = 0
        self._lines = Lines(NAMES)
        self._outbox: Outbox[Event | Verdict, bytes] = Outbox(
            "journal", self._lines.of, self._write, bound, retry_seconds=retry_seconds
        )
        self.extend = self._outbox.extend
        """Queue events and decisions: never waits, never fails. Loop thread only."""

    @property
    def dropped(self) -> int:
        """Events that will never be in the file, some because they hold what JSON cannot."""
        return self._outbox.dropped + self._lines.unencodable

    @property
    def failures(self) -> int:
        """Writes that failed (full disk, unwritable path); each is tried again."""
        return self._outbox.failures

    def start(self) -> None:
        """Start the writing thread."""
        self._outbox.start()

    def close(self, wait_seconds: float = 5.0) -> None:
        """Write what is queued, then close the file."""
        self._outbox.close(wait_seconds)
        self._shut()

    def _write(self, batch: Sequence[bytes]) -> None:
        if self._fd < 0:
            self._open()
        elif self._size >= self._max_bytes:
            self._rotate()
            self._open()
        self._put(b"".join(batch))

    def _put(self, data: bytes) -> None:
        """All of ``data`` or nothing: what a full disk took of it is cut off again."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            if len(view) < len(data):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = _cut_torn_line(fd)
            self._fd = fd
            self._put(self._lines.of([self._opened._replace(at=time.time())]))
        except OSError:
            os.close(fd)
            self._fd = -1
            raise
        self._opened = self._opened._replace(state="continues")

    def _rotate(self) -> None:
        self._shut()
        for number in range(self._keep, 0, -1):
            older = _numbered(self.path, number)
            newer = _numbered(self.path, number - 1) if number > 1 else self.path
            if newer.exists():
                newer.replace(older)
        if self._keep == 0:
            self.path.unlink(missing_ok=True)

    def _shut(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def worker_path(path: Path | str, worker: int) -> Path:
    """The file of one worker of several: ``journal.jsonl`` → ``journal.2.jsonl``. Each has its own order of events."""
    path = Path(path)
    return path.with_name(f"{path.stem}.{worker}{path.suffix}")


def history(path: Path | str) -> list[Path]:
    """``path`` and the files rotated away from it, oldest first."""
    path = Path(path)
    start = f"{path.name}."
    numbers = [found.name.removeprefix(start) for found in path.parent.iterdir() if found.name.startswith(start)]
    rotated = sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)
    return [_numbered(path, number) for number in rotated] + ([path] if path.exists() else [])


def read(paths: Iterable[Path | str]) -> Iterator[Event]:
    """The events of these files in order. Everything else in them is passed over; faults as in ``entries``."""
    for entry in entries(paths):
        if type(entry) in _EVENTS:
            yield entry  # type: ignore[misc]  # the set holds exactly the members of Event


def entries(paths: Iterable[Path | str]) -> Iterator[Entry]:
    """All that the files say, in order: events, verdicts, openings and gaps.

    Tolerates what time does to files: events it does not know, fields added since (ignored) or not yet there
    (their defaults), and a torn last line. Raises ``JournalError`` for any other line, or a newer format.
    """
    for path in map(Path, paths):
        with path.open("rb") as file:
            yield from _entries(path, file)


def _entries(path: Path, lines: Iterable[bytes]) -> Iterator[Entry]:
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return  # torn: the writer was killed inside its last write
        try:
            entry = parse(line)
        except ValueError as error:
            raise JournalError(path, number, str(error)) from None
        if number == 1 and type(entry) is not Opened:
            raise JournalError(path, 1, 'not a draftlane journal: it does not begin with ["Journal", …]')
        if entry is not None:
            yield entry


def parse(line: bytes) -> Entry | None:
    """One line, or None for an event of a later version. Raises ``ValueError`` for anything else."""
    fields = msgspec.json.decode(line)
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], str):
        raise ValueError("not an array that begins with a name")
    kind = NAMES.get(fields[0])
    if kind is None:
        return None
    known = len(kind._fields)  # type: ignore[attr-defined]  # every kind is a NamedTuple
    entry = msgspec.convert(fields[1 : known + 1], kind)
    if isinstance(entry, Opened) and entry.format > FORMAT:
        raise ValueError(f"journal format {entry.format}; this version reads up to {FORMAT}")
    return entry  # type: ignore[return-value]  # NAMES holds exactly the members of Entry


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _cut_torn_line(fd: int) -> int:
    """Cut off what a killed process left after the last line end; the size that remains."""
    size = os.lseek(fd, 0, os.SEEK_END)
    end = size
    while end:
        start = max(0, end - 65536)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
    return end
