"""What is said on standard error: a line per decision, and the standard library's log, in one form.

JSON, one object a line, or text for people. A thread writes; when the reader of standard error is slow, lines
are dropped and counted, and requests go on. No prompt, no answer and no key is ever in a line.
"""

import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, TextIO

import msgspec

from proxy.outbox import Dropped, Outbox
from proxy.outcome import BACKEND_ERROR, REJECTED, Outcome
from proxy.safe_names import short, shown

JSON, TEXT = "json", "text"
NOISY = ("httpx", "uvicorn.error")
"""They tell of every look at a backend, and of every start in words of their own; heard from ``warning`` on, or all in ``debug``."""


class Said(NamedTuple):
    """A record of the standard library's log, made independent of whatever its arguments refer to."""

    at: float
    level: str
    logger: str
    message: str
    exception: str | None = None


class Decided:
    """A request that is over."""

    __slots__ = ("at", "told")

    def __init__(self, at: float, told: Outcome) -> None:
        self.at = at
        self.told = told


Line = Said | Decided


class Log:
    """``ended`` for each request, ``install`` to take over the standard library's log; ``start`` and ``close``."""

    def __init__(self, stream: TextIO, style: str | None = None, decisions: bool = True, bound: int = 20_000) -> None:
        """``style`` is ``json`` or ``text``; None chooses text for a terminal."""
        self._stream = stream
        self._decisions = decisions
        self._outbox: Outbox[Line, str] = Outbox("log", _form(stream, style), self._write, bound)
        self._replaced: list[logging.Handler] = []
        self._level = logging.WARNING
        self.handler = Handler(self._outbox)

    @property
    def dropped(self) -> int:
        """Lines that were never written."""
        return self._outbox.dropped

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """Tell of requests that are over. Never waits, never fails."""
        if self._decisions:
            now = time.time()
            self._outbox.extend([Decided(now, told) for told in outcomes])

    def install(self, level: str = "info") -> None:
        """Write what the root logger hears here and nowhere else, until ``close``."""
        root = logging.getLogger()
        self._replaced, self._level = root.handlers[:], root.level
        root.handlers[:] = [self.handler]
        root.setLevel(level.upper())
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.INFO if root.level < logging.INFO else logging.WARNING)

    def start(self) -> None:
        """Start the writing thread."""
        self._outbox.start()

    def close(self, wait_seconds: float = 2.0) -> None:
        """Write what is queued and give the standard library's log back."""
        root = logging.getLogger()
        if self.handler in root.handlers:
            root.handlers[:] = self._replaced
            root.setLevel(self._level)
        self._outbox.close(wait_seconds)

    def _write(self, batch: Sequence[str]) -> None:
        if not batch:
            return
        try:
            self._stream.write("".join(batch))
            self._stream.flush()
        except ValueError as error:  # a closed file is one to Python's streams
            raise OSError(str(error)) from error


class Handler(logging.Handler):
    """Queues records of the standard library's log."""

    def __init__(self, outbox: Outbox[Line, str]) -> None:
        super().__init__()
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        """Format what may change later; leave the rest to the thread."""
        self._outbox.append(_said(record))


class Direct(logging.Handler):
    """Writes records at once, for a process that may have no thread (the parent of several workers)."""

    def __init__(self, stream: TextIO, style: str | None = None) -> None:
        """As ``Log``."""
        super().__init__()
        self._stream = stream
        self._lines = _form(stream, style)

    def emit(self, record: logging.LogRecord) -> None:
        """Write, or lose the line when nobody can read it."""
        with suppress(OSError, ValueError):
            self._stream.write(self._lines((_said(record),)))
            self._stream.flush()


def _form(stream: TextIO, style: str | None) -> Callable[[Sequence[Line | Dropped]], str]:
    return _text_lines if (style or (TEXT if stream.isatty() else JSON)) == TEXT else _json_lines


def _said(record: logging.LogRecord) -> Said:
    try:
        message = record.getMessage()
    except (TypeError, ValueError):
        message = f"{record.msg} (arguments do not fit)"
    exception = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else None
    message = message.encode(errors="replace").decode()
    return Said(record.created, record.levelname.lower(), record.name, message, exception)


_encoder: Final = msgspec.json.Encoder()
_COMMA: Final = ord(",")


def _json_lines(batch: Sequence[Line | Dropped]) -> str:
    lines = bytearray()
    at, time_of = -1.0, b""
    for line in batch:
        if not isinstance(line, Decided):
            _encoder.encode_into({key: value for key, value in _fields(line) if value not in (None, "")}, lines, -1)
        else:
            if line.at != at:  # the same for all of a wave
                at, time_of = line.at, b'{"time":"%b' % _iso(line.at).encode()
            lines += time_of
            lines += _REQUEST[_level(line.told)]
            start = len(lines)
            _encoder.encode_into(shown(line.told), lines, -1)
            lines[start] = _COMMA
        lines += b"\n"
    return lines.decode()


_REQUEST: Final = {level: b'","level":"%b","event":"request"' % level.encode() for level in ("info", "warning")}
"""What is said after the time; the outcome's own members follow, behind a comma in place of their brace."""


def _fields(line: Said | Dropped) -> Iterator[tuple[str, object]]:
    if isinstance(line, Dropped):
        yield from (("time", _iso(time.time())), ("level", "warning"), ("event", "dropped"), ("lines", line.missing))
        return
    yield from (("time", _iso(line.at)), ("level", line.level), ("event", "log"), ("logger", line.logger))
    yield "message", _without_secrets(line.message)
    yield "exception", line.exception and _without_secrets(line.exception)


def _text_lines(batch: Sequence[Line | Dropped]) -> str:
    return "".join([f"{_text(line)}\n" for line in batch])


def _text(line: Line | Dropped) -> str:
    if isinstance(line, Dropped):
        return f"{_clock(time.time())} WARNING {line.missing} lines are missing here"
    if isinstance(line, Said):
        lines = [_without_secrets(line.message), *_without_secrets(line.exception or "").splitlines()]
        return f"{_clock(line.at)} {line.level.upper():7} " + "\n".join(map(_printable, lines))
    return f"{_clock(line.at)} {_level(line.told).upper():7} {_printable(_sentence(line.told))}"


def _sentence(told: Outcome) -> str:
    return "  ".join(part for part in (_who(told), _where(told), _how(told), _how_fast(told)) if part)


def _who(told: Outcome) -> str:
    return " ".join(map(short, (told.id, told.app, told.model)))


def _where(told: Outcome) -> str:
    if not told.backend:
        return ""
    why = told.reason
    if told.ratio is not None:
        bar = "?" if told.break_even is None else f"{told.break_even:.3g}"
        why = f"{why}, ratio {told.ratio:.3g} to {bar}"
    return f"→ {told.backend} ({' '.join(filter(None, (told.lane, told.workload)))}: {why})"


def _how(told: Outcome) -> str:
    again = f" after {told.retries + told.requeues + 1} attempts" if told.retries or told.requeues else ""
    return f"{told.status or '-'} {told.outcome}{f' ({told.fault})' if told.fault else ''}{again}"


def _how_fast(told: Outcome) -> str:
    parts = [f"{told.latency_seconds:.2f} s"]
    if told.completion_tokens is not None:
        guess = f" of {told.predicted_tokens:.0f} predicted" if told.predicted_tokens is not None else ""
        parts.append(f"{told.completion_tokens} tokens{guess}")
    if told.ttft_seconds is not None:
        parts.append(f"first after {told.ttft_seconds:.3f} s")
    if told.tpot_seconds is not None:
        parts.append(f"{told.tpot_seconds * 1000:.1f} ms each")
    if told.tokens_per_step is not None:
        parts.append(f"{told.tokens_per_step:.2f} a step")
    if told.draft_tokens:
        parts.append(f"accepted {told.accepted_tokens} of {told.draft_tokens}")
    return ", ".join(parts)


def _level(told: Outcome) -> str:
    return "warning" if told.outcome in (BACKEND_ERROR, REJECTED) else "info"


def _iso(at: float) -> str:
    whole = int(at)
    return f"{_second(whole)}.{str(1000 + int((at - whole) * 1000.0))[1:]}Z"  # quicker than a format


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    """A second is asked for by every line in it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def _printable(text: str) -> str:
    """Names come from clients: no escape sequence of theirs reaches the operator's terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


_SECRETS: Final = re.compile(r"(?i)(bearer\s+|x-api-key\W{1,4}|api_key\W{1,4}|://[^/\s:@]*:(?=[^\s\"']*@))[^\s\"',@]+")


def _without_secrets(text: str) -> str:
    """Other people's libraries log what they please; keys and passwords in URLs are blanked."""
    return _SECRETS.sub(r"\1***", text)
