"""The head of a backend's answer, and what of it may be passed on."""

from proxy.wire.headers import HOP_BY_HOP, Headers, has, named_by_connection

OURS = frozenset(
    (
        b"x-request-id",
        b"x-draftlane-lane",
        b"x-draftlane-class",
        b"x-draftlane-backend",
        b"x-draftlane-reason",
    )
)
"""Headers the gateway sets itself."""


class AnswerHead:
    """A status line and headers. One object may stand for many answers, which differ in Content-Length alone."""

    __slots__ = (
        "content_coding",
        "content_type",
        "fault",
        "for_client",
        "headers",
        "is_coded",
        "is_plain",
        "is_stream",
        "lines",
        "reason",
        "status",
    )

    def __init__(self, status: int, reason: bytes, headers: Headers) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.fault = fault_of(status)
        """What the answer tells of the backend (``policies.events.FAULTS``)."""
        self.for_client = status == 429 and has(headers, b"retry-after")
        """A 429 that names a time is meant for this client (its rate); one that does not is a full queue."""
        self.content_type = self.content_coding = ""
        """In lower case."""
        self.lines = b"".join(self._passed_on(headers))
        """Header lines for the client: neither hop-by-hop headers nor framing."""
        self.is_stream = "event-stream" in self.content_type
        self.is_coded = self.content_coding not in ("", "identity")
        """Compressed, so that no event of ours can be added."""
        self.is_plain = not self.is_stream and not self.is_coded
        """A document that can be read as it is."""

    def is_of(self, status: int, reason: bytes, headers: Headers) -> bool:
        """Whether it says this, to the letter."""
        return self.status == status and self.reason == reason and self.headers == headers

    def _passed_on(self, headers: Headers) -> list[bytes]:
        left_out = named_by_connection(headers)
        lines = []
        for name, value in headers:
            low = name.lower()
            if low == b"content-length" or low in HOP_BY_HOP or low in OURS or low in left_out:
                continue
            if low == b"content-type":
                self.content_type = value.decode("latin-1").lower()
            elif low == b"content-encoding":
                self.content_coding = value.decode("latin-1").strip().lower()
            lines.append(b"%b: %b\r\n" % (name, value))
        return lines


def fault_of(status: int) -> str | None:
    """The fault that an answer's status tells of; 501 only says that the backend lacks a surface."""
    if status in (429, 503):
        return "busy"
    return "status" if status >= 500 and status != 501 else None
