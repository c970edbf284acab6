"""What the parent and its workers say to each other, and how it travels over a pair of stream sockets.

A message is four bytes of length, then MessagePack. Both ends are of one release and one process tree, so there is no
version here; what the workers gossip inside ``Gossiped`` carries its own.
"""

from collections.abc import Iterator

import msgspec

from proxy.metrics import Figures

FIGURES, STATE = "figures", "state"
"""What may be asked of a worker: its metrics (``FIGURES_DECODER`` reads them), the parts of ``/admin/state`` that belong to one worker."""


class Ready(msgspec.Struct, tag=True, array_like=True):
    """Worker: I serve. The only message without an answer."""


class Gossiped(msgspec.Struct, tag=True, array_like=True):
    """Worker, and parent to the others: a message of ``proxy.gossip``."""

    data: bytes


class Ask(msgspec.Struct, tag=True, array_like=True):
    """Worker: this is my part; what do the others say? Answered by ``Told`` with the same number."""

    number: int
    topic: str
    data: bytes


class Give(msgspec.Struct, tag=True, array_like=True):
    """Parent: your part, please."""

    number: int
    topic: str


class Given(msgspec.Struct, tag=True, array_like=True):
    """Worker: my part."""

    number: int
    data: bytes


class Told(msgspec.Struct, tag=True, array_like=True):
    """Parent: what the others said, in order of their numbers, and what is kept of workers that are gone."""

    number: int
    parts: list[bytes]


class Stop(msgspec.Struct, tag=True, array_like=True):
    """Parent: finish what runs and end; ``at_once`` without finishing."""

    at_once: bool


Message = Ready | Gossiped | Ask | Give | Given | Told | Stop

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Message)
FIGURES_DECODER = msgspec.msgpack.Decoder(Figures)


def framed(message: Message) -> bytes:
    """A message as it travels."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(4) + data


class Unframer:
    """Turns what was read, however it was cut, into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now. Raises msgspec.DecodeError for what is none."""
        rest = self._rest
        rest += data
        while len(rest) >= 4 and len(rest) >= (end := 4 + int.from_bytes(rest[:4])):
            message = bytes(rest[4:end])
            del rest[:end]
            yield _DECODER.decode(message)
