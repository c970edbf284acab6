"""Events that are held back for a moment come as they would have come."""

import asyncio
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.surfaces import SURFACES
from proxy.wire.burst import HEELS_SECONDS, Burst
from proxy.wire.fast import FastInbound
from proxy.wire.inbound import Head

CHAT = next(surface for surface in SURFACES if surface.name == "chat")
POST = Head(b"POST", CHAT.paths[0].encode(), b"", [])


class Line:
    """A transport that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def write(self, data: bytes) -> None:
        assert not self.is_closing()
        self.said.append(data)

    def close(self) -> None:
        self.said.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.said


class Carrier:
    """A connection with one request on it."""

    client, scheme = None, "http"

    def __init__(self, burst: Burst) -> None:
        self.burst, self.transport = burst, Line()
        self.under_way: list[FastInbound] = []

    def on_response_complete(self) -> None: ...


def answering(burst: Burst) -> tuple[FastInbound, Line]:
    """A request whose answer streams, and what its client hears from now on."""
    carrier = Carrier(burst)
    inbound = FastInbound(carrier, CHAT, POST, keep_alive=False)  # type: ignore[arg-type]  # as much as is asked for
    inbound.received = True
    inbound.start(200, b"OK", [], None)
    inbound.write(b"role")
    carrier.transport.said.clear()
    return inbound, carrier.transport


STEPS: dict[str, Callable[[FastInbound, bytes], None]] = {
    "event": lambda inbound, data: inbound.write_chunks(b"<%b>" % data, data, 1.0),
    "late event": lambda inbound, data: inbound.write_chunks(b"<%b>" % data, data, 1.0 + HEELS_SECONDS * 2 * int(data)),
    "changed event": lambda inbound, data: inbound.write(data),
    "end": lambda inbound, _: inbound.finish([]),
    "fault": lambda inbound, _: inbound.abort(),
}


@given(
    st.lists(st.sampled_from(["event", "event", "late event", "changed event"]), max_size=6),
    st.sampled_from(["end", "fault", ""]),
)
@example(["event", "changed event", "event", "event"], "end")
@example(["event", "late event"], "fault")
async def test_a_client_hears_all_in_order_whether_or_not_it_was_held_back(steps: list[str], last: str) -> None:
    (held, late), (prompt, early) = answering(Burst()), answering(Burst())
    for number, step in enumerate(filter(None, [*steps, last])):
        STEPS[step](held, b"%d" % number)
        STEPS[step](prompt, b"%d" % number)
        prompt.write_held()
    await asyncio.sleep(0)
    assert late.said == early.said


async def test_events_at_the_heels_of_one_are_written_together_when_the_turn_is_over() -> None:
    burst = Burst()
    streams = [answering(burst) for _ in range(3)]
    for number, (inbound, _) in enumerate(streams):
        inbound.write_chunks(b"<a>", b"a", 1.0 + number * HEELS_SECONDS / 2)
    assert [line.said for _, line in streams] == [[b"<a>"], [], []]
    await asyncio.sleep(0)
    assert [line.said for _, line in streams] == [[b"<a>"]] * 3


async def test_events_that_come_one_by_one_do_not_wait() -> None:
    burst = Burst()
    inbound, line = answering(burst)
    for number in range(3):
        inbound.write_chunks(b"<%d>" % number, b"", 1.0 + number * HEELS_SECONDS * 2)
        assert line.said[number:] == [b"<%d>" % number]


async def test_nothing_is_written_to_who_left_in_between() -> None:
    burst = Burst()
    (left, silence), (closed, end), (stays, line) = (answering(burst) for _ in range(3))
    burst.heard_at = 1.0
    for inbound in (left, closed, stays):
        inbound.write_chunks(b"<a>", b"a", 1.0)
    left.disconnected = True
    end.close()
    await asyncio.sleep(0)
    assert (silence.said, end.said, line.said) == ([], [b"closed"], [b"<a>"])
