"""Reads an answer as it passes: server-sent events, one JSON document, or something else.

Hot path of the product: an ordinary event differs from the one before in its text only, so a learnt
template is compared (no JSON, no copy) and everything else takes the long way. What the body is gets
decided by its first byte, because engines answer streams with JSON and the other way round.
"""

from functools import cache
from typing import Final

from proxy.meter import blocks
from proxy.meter.base import Facts, Meter
from proxy.meter.reader import Reader, Seen
from proxy.meter.template import NEVER, Template, count_fitting, learn

_WHITE: Final = b"\xef\xbb\xbf \t\r\n"
_COLON: Final = ord(":")
_FIELD_STARTS: Final = b":deir"  # a comment, or data, event, id, retry
_LARGEST_READ = 8 << 20  # bytes of one event or document that are kept to be read
_LARGEST_USAGE_EVENT: Final = 64 << 10
_TRIES: Final = 8  # events; logprobs, token ids or usage on every event leave nothing to learn
_RETRY_EVERY: Final = 64

_UNDECIDED: Final = 0
_STREAM: Final = 1
_DOCUMENT: Final = 2
_OPAQUE: Final = 3


@cache
def _marks(text_keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The keys as they stand in JSON; there is one set per dialect."""
    return tuple(b'"' + key + b'"' for key in text_keys)


class StreamMeter(Meter):
    """A meter for identity-coded bodies; see ``proxy.meter.base.Meter``."""

    __slots__ = (
        "_after",
        "_after_size",
        "_armed",
        "_before",
        "_before_size",
        "_event_stream",
        "_form",
        "_learnt_at",
        "_marks",
        "_oversize",
        "_partial",
        "_reader",
        "_sent",
        "_strip",
        "_swallow",
        "_template",
        "_unused",
    )

    def __init__(self, reader: Reader, event_stream: bool, strip_usage: bool) -> None:
        self.first_token_at: float | None = None
        self.events = 0
        self._reader = reader
        self._event_stream = event_stream
        self._strip = strip_usage
        self._marks = _marks(reader.text_keys)
        self._form = _UNDECIDED
        self._partial = bytearray()
        self._sent = 0  # bytes of the partial block that the client has already
        self._oversize = False
        self._swallow = False  # the dropped block ended in CR: an LF that follows belongs to it
        self._template = NEVER
        self._armed: Template | None = None
        self._learnt_at = 0  # events when the template was learnt
        self._unused = 0  # templates in a row that fitted nothing
        self._arm(NEVER)

    def _arm(self, template: Template) -> None:
        if template is not self._armed:
            self._armed = template
            self._before, self._after = template.before, template.after
            self._before_size, self._after_size = len(template.before), len(template.after)

    def feed(self, data: bytes, at: float) -> bytes:
        """See ``Meter``."""
        if data.startswith(self._before) and data.endswith(self._after):
            end = len(data) - self._after_size
            if end > self._before_size and data.find(b'"', self._before_size, end) < 0:
                self.events += 1
                return data
            if several := count_fitting(self._template, data):
                self.events += several
                return data
        if self._form == _STREAM:
            return self._read_stream(data, at)
        return self._read_start(data, at)

    def leaves(self, data: bytes) -> bool:
        """See ``Meter``. Whole events without a word of usage, not even one spelt in JSON escapes."""
        if not self._strip:
            return True
        if self._partial or self._swallow or not data.endswith(b"\n\n"):
            return False
        return data.find(b"usage") < 0 and data.find(b"\\u") < 0  # ``in`` first makes an error of what is no number

    def end(self, at: float) -> bytes:
        """See ``Meter``."""
        if self._form == _DOCUMENT:
            if not self._oversize:
                self._reader.document(bytes(self._partial))
            self._partial = bytearray()
            return b""
        if self._form != _STREAM or not self._partial:
            return b""
        block, sent = bytes(self._partial), self._sent
        self._partial, self._sent = bytearray(), 0
        if self._oversize:
            self._count(at)
        elif self._read_block(block, at):
            return blocks.comments(block)
        return block[sent:]

    def facts(self) -> Facts:
        """See ``Meter``."""
        return self._reader.tally.facts(self.events)

    def _read_start(self, data: bytes, at: float) -> bytes:
        if self._form == _UNDECIDED:
            body = data.lstrip(_WHITE)
            if not body:
                return data
            self._form = self._form_of(body[0])
            if self._form == _STREAM:
                white = data[: len(data) - len(body)]
                return white + self._read_stream(body, at) if white else self._read_stream(data, at)
        if self._form == _DOCUMENT and not self._oversize:
            self._partial += data
            self._oversize = len(self._partial) > _LARGEST_READ
            if self._oversize:
                self._partial = bytearray()
        return data

    def _form_of(self, first: int) -> int:
        if first in b"{[":
            return _DOCUMENT
        return _STREAM if self._event_stream or first in _FIELD_STARTS else _OPAQUE

    def _read_stream(self, data: bytes, at: float) -> bytes:
        if self._swallow:
            self._swallow = False
            data = data.removeprefix(b"\n")
        if self._partial:
            seam = bytes(self._partial[-3:]) + data
            if self._partial[0] != _COLON and blocks.block_end(seam, 0) < 0:
                return self._grow(data)
            buffer, sent = bytes(self._partial) + data, self._sent
        else:
            buffer, sent = data, 0
        start, kept, cut = self._read_blocks(buffer, sent, at)
        rest = self._keep_partial(buffer, start)
        if not kept and not cut and not sent:
            return buffer if rest == len(buffer) else buffer[:rest]
        return b"".join(kept) + blocks.between(buffer, max(cut, sent), rest)

    def _read_blocks(self, buffer: bytes, sent: int, at: float) -> tuple[int, list[bytes], int]:
        """Reads the complete blocks: (where the rest begins, pieces to send, from where on all is to be sent)."""
        block_end = blocks.block_end if b"\r" in buffer else blocks.block_end_lf
        kept: list[bytes] = []
        start, cut = 0, 0
        while (end := block_end(buffer, start)) >= 0:
            begin, start = blocks.ignored_until(buffer, start), end
            if self._oversize:
                self._oversize = False
                self._count(at)
            elif self._read_block(block := blocks.between(buffer, begin, end), at):
                kept += (blocks.between(buffer, max(cut, sent), begin), blocks.comments(block))
                cut = end
                self._swallow = end == len(buffer) and block.endswith(b"\r")
        return start, kept, cut

    def _keep_partial(self, buffer: bytes, start: int) -> int:
        """Keeps what is no complete block yet; returns up to where the client may have the buffer now."""
        start = blocks.ignored_until(buffer, start)
        rest = buffer[start:]
        if not rest:
            if self._partial:
                self._partial, self._sent = bytearray(), 0
            self._arm(NEVER if self._swallow else self._template)
            return start
        self._arm(NEVER)
        if rest.startswith(b":"):  # a comment not ended yet: a colon is all there is to remember
            self._partial, self._sent = bytearray(b":"), 1
            return len(buffer)
        self._partial = bytearray(rest)
        if self._may_be_usage(rest):
            self._sent = 0
            return start
        self._forget_oversize()
        return len(buffer)

    def _grow(self, data: bytes) -> bytes:
        """The block goes on; holds it back while it may be a usage event."""
        held = self._sent < len(self._partial)
        self._partial += data
        if held and self._may_be_usage(self._partial):
            return b""
        out = bytes(self._partial) if held else data
        self._forget_oversize()
        return out

    def _forget_oversize(self) -> None:
        """The client has all of the partial block; of one too large to be read, its end is enough to go on with."""
        if len(self._partial) > _LARGEST_READ:
            self._oversize = True
            self._partial = self._partial[-3:]
        self._sent = len(self._partial)

    def _may_be_usage(self, part: bytes | bytearray) -> bool:
        return self._strip and len(part) <= _LARGEST_USAGE_EVENT and not blocks.cannot_be_usage_event(part)

    def _read_block(self, block: bytes, at: float) -> bool:
        """Reads one block in full; True when it is the usage event to be taken out."""
        if count_fitting(self._template, block):
            self.events += 1
            return False
        if len(block) > _LARGEST_READ:
            self._count(at)
            return False
        payload = blocks.data_of(block)
        if not payload:
            return False
        seen: Seen = self._reader.event(payload)
        if seen.content:
            self._count(at)
            self._learn(block)
        return seen.usage_only and self._may_be_usage(block)

    def _learn(self, block: bytes) -> None:
        """Learns the event's template, or rests from it where every event differs in more than its text."""
        self._unused = self._unused + 1 if self.events == self._learnt_at + 1 else 0
        self._learnt_at = self.events
        if self._unused < _TRIES or self.events % _RETRY_EVERY == 0:
            self._template = learn(block, self._marks)

    def _count(self, at: float) -> None:
        self.events += 1
        if self.first_token_at is None:
            self.first_token_at = at
