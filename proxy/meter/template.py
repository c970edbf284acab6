"""What stays the same from one event of a stream to the next, so that only its text need be looked at."""

import re
from typing import Final, NamedTuple


class Template(NamedTuple):
    """The bytes around the generated text of an event that was read in full."""

    before: bytes
    after: bytes
    joint: bytes
    """Where one event of this kind ends and the next begins."""
    to_number: bytes = b""
    """From the text to an event number that is different in each event; ``after`` then begins behind it."""


_STRING_VALUE: Final = re.compile(rb'\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"')


_EVENT_NUMBER: Final = re.compile(rb'"sequence_number"\s*:\s*(\d+)')

# No event can begin so: 0xFF is in no UTF-8 text.
NEVER: Final = Template(b"\xff", b"\xff", b"\xff\xff")


def learn(block: bytes, marks: tuple[bytes, ...]) -> Template:
    """The template of an event known to carry content; ``marks`` are the quoted keys of generated text.

    Only where exactly one of them has a text: every event with these very bytes around some other
    non-empty text then carries content too, and tells nothing else that is new.
    """
    text: tuple[int, int] | None = None
    for mark in marks:
        at = block.find(mark)
        while at >= 0:
            value = _STRING_VALUE.match(block, at + len(mark))
            if value is not None and value[1]:
                if text is not None:
                    return NEVER
                text = value.span(1)
            at = block.find(mark, at + len(mark))
    if text is None:
        return NEVER
    before, after = block[: text[0]], block[text[1] :]
    number = _EVENT_NUMBER.search(after)
    if number is not None:
        return Template(before, after[number.end() :], NEVER.joint, after[: number.start(1)])
    return Template(before, after, after + before)


def count_fitting(template: Template, buffer: bytes) -> int:
    """How many events of this template ``buffer`` consists of; 0 when there is anything else in it.

    Exact for JSON: the text of an event is a string, so it has no unescaped quote and may not be empty.
    """
    before, after, joint, to_number = template
    end = len(buffer) - len(after)
    if end <= len(before) or not (buffer.startswith(before) and buffer.endswith(after)):
        return 0
    if to_number:
        return int(_fits_numbered(buffer, len(before), to_number, end))
    texts = buffer[len(before) : end].split(joint)
    if b"" in texts or not _is_string_inside(b"".join(texts)):
        return 0
    return len(texts)


def _fits_numbered(buffer: bytes, start: int, to_number: bytes, end: int) -> bool:
    """Whether a text, what leads to its event number, and a number stand between ``start`` and ``end``."""
    lead = buffer.find(to_number, start, end)
    return lead > start and _is_string_inside(buffer[start:lead]) and buffer[lead + len(to_number) : end].isdigit()


def _is_string_inside(text: bytes) -> bool:
    if b'"' not in text:
        return True
    if b"\\\\" in text:
        text = text.replace(b"\\\\", b"")
    return text.count(b'"') == text.count(b'\\"')
