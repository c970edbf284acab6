"""Meters: bytes in, the same bytes out, and facts."""

from proxy.meter.base import Meter
from proxy.meter.inflate import Inflating
from proxy.meter.reader import Reader
from proxy.meter.stream import StreamMeter


def meter_for(reader: Reader, content_type: str, content_encoding: str, strip_usage: bool) -> Meter:
    """A meter for an answer with these headers. Usage cannot be taken out of a compressed stream."""
    event_stream = content_type.lower().startswith("text/event-stream")
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return StreamMeter(reader, event_stream, strip_usage)
    return Inflating(StreamMeter(reader, event_stream, False), coding)
