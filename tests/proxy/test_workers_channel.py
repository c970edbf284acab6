"""Messages between parent and workers survive any cut of the stream; figures survive the journey."""

import math

from hypothesis import given
from hypothesis import strategies as st

from proxy.metrics import Figures, page
from proxy.workers_channel import (
    FIGURES_DECODER,
    Ask,
    Give,
    Given,
    Gossiped,
    Message,
    Ready,
    Stop,
    Told,
    Unframer,
    framed,
)
from proxy.workers_showing import packed_figures

numbers = st.integers(0, 2**31)
messages: st.SearchStrategy[Message] = st.one_of(
    st.just(Ready()),
    st.builds(Gossiped, st.binary()),
    st.builds(Ask, numbers, st.text(max_size=9), st.binary()),
    st.builds(Give, numbers, st.text(max_size=9)),
    st.builds(Given, numbers, st.binary(max_size=3000)),
    st.builds(Told, numbers, st.lists(st.binary(max_size=99), max_size=4)),
    st.builds(Stop, st.booleans()),
)


@given(st.lists(messages, max_size=8), st.lists(st.integers(1, 200), min_size=1))
def test_however_the_stream_is_cut_the_messages_are_the_same(sent: list[Message], cuts: list[int]) -> None:
    stream = b"".join(map(framed, sent))
    unframer, got, at = Unframer(), list[Message](), 0
    while at < len(stream):
        cut = cuts[at % len(cuts)]
        got += unframer.feed(stream[at : at + cut])
        at += cut
    assert got == sent


def test_figures_arrive_as_they_were_sent() -> None:
    figures: Figures = {
        "draftlane_own_seconds": {(): ((1, 2, *[0] * 11), 0.5)},
        "draftlane_alarm": {("a", "ü"): True, ("b", ""): math.inf},
        "draftlane_requests_in_progress": {("chat",): 3},
    }
    arrived = FIGURES_DECODER.decode(packed_figures(figures))
    assert arrived == figures
    assert page(arrived) == page(figures)
