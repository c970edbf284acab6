from collections import deque

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policies.events import Event, PeerLearnt, PeerLoad, PeerLost
from proxy import gossip as room
from proxy.gossip import Facts, Gossip, Load, lessons_in


class Replica:
    """A gossip with what it was told, at a time set by hand."""

    def __init__(self, name: str) -> None:
        self.time = 100.0
        self.events: list[Event] = []
        self.lessons: deque[Facts] = deque()
        self.load = [Load("spec", 1, 20.0, 300.0), Load("plain", 0, 0.0, 0.0)]
        self.gossip = Gossip(name, self.events.append, lambda: self.time, self.lessons, lambda: self.load)

    def batches(self) -> list[bytes]:
        told = []
        while (message := self.gossip.next_lessons()) is not None:
            told.append(message)
            self.gossip.told(message)
        return told

    def learnt(self) -> list[Facts]:
        return [event.facts for event in self.events if isinstance(event, PeerLearnt)]


FACTS = st.lists(
    st.tuples(st.text(max_size=5), st.integers(0, 2**63 - 1), st.floats(allow_nan=False), st.none(), st.booleans())
)


def must(message: bytes | None) -> bytes:
    assert message is not None
    return message


@given(FACTS)
def test_lessons_arrive_as_they_were(facts: list[Facts]) -> None:
    one, two = Replica("one"), Replica("two")
    one.lessons.extend(facts)
    for batch in one.batches():
        two.gossip.hear(batch)
    assert two.learnt() == facts
    assert two.gossip.learnt == len(facts)


@given(st.data())
def test_late_doubled_and_misordered_batches_teach_everything_once(data: st.DataObject) -> None:
    one, two = Replica("one"), Replica("two")
    facts: list[Facts] = [("backend", number) for number in range(200)]
    one.lessons.extend(facts)
    batches = one.batches()
    carried = data.draw(st.permutations(batches + data.draw(st.lists(st.sampled_from(batches)))))
    for batch in carried:
        two.gossip.hear(batch)
    assert sorted(two.learnt()) == facts


def test_a_batch_is_offered_until_it_was_carried() -> None:
    one, two = Replica("one"), Replica("two")
    one.lessons.append(("first",))
    message = must(one.gossip.next_lessons())
    two.gossip.hear(message)  # carried, but the answer was lost
    one.lessons.append(("second",))
    again = must(one.gossip.next_lessons())
    assert lessons_in(again) == 2
    two.gossip.hear(again)
    one.gossip.told(message)
    one.gossip.told(again)
    assert one.gossip.next_lessons() is None
    assert two.learnt() == [("first",), ("second",)]


def test_lessons_wait_for_a_carrier_in_a_bounded_queue() -> None:
    one = Replica("one")
    one.lessons.extend(("backend", number) for number in range(room.WAITING + 7))
    first = must(one.gossip.next_lessons())
    assert one.gossip.dropped == 7
    two = Replica("two")
    two.gossip.hear(first)
    assert two.learnt()[0] == ("backend", 7)


def test_load_is_told_when_it_changes_and_as_a_sign_of_life() -> None:
    one = Replica("one")
    assert one.gossip.next_load()
    assert one.gossip.next_load() is None
    one.load = [Load("spec", 2, 20.0, 300.0)]
    assert one.gossip.next_load()
    one.time += 1.0
    assert one.gossip.next_load()
    assert one.gossip.next_load() is None
    one.gossip.untold()
    assert one.gossip.next_load()


def test_load_is_heard_per_backend_with_a_growing_number() -> None:
    one, two = Replica("one"), Replica("two")
    two.gossip.hear(must(one.gossip.next_load()))
    assert two.events == [
        PeerLoad(100.0, "one", 1, "spec", 1, 20.0, 300.0),
        PeerLoad(100.0, "one", 1, "plain", 0, 0.0, 0.0),
    ]
    one.load = [Load("spec", 0, 0.0, 320.0)]
    two.gossip.hear(must(one.gossip.next_load()))
    assert two.events[-1] == PeerLoad(100.0, "one", 2, "spec", 0, 0.0, 320.0)
    assert two.gossip.peers == 1


def test_a_silent_replica_is_lost_once_and_may_come_back() -> None:
    one, two = Replica("one"), Replica("two")
    two.gossip.hear(must(one.gossip.next_load()))
    two.time += 5.0
    two.gossip.check_silence()
    assert two.gossip.peers == 1
    two.time += 0.1
    two.gossip.check_silence()
    two.gossip.check_silence()
    assert [event for event in two.events if isinstance(event, PeerLost)] == [PeerLost(105.1, "one")]
    assert two.gossip.peers == 0
    one.gossip.untold()
    two.gossip.hear(must(one.gossip.next_load()))
    assert two.gossip.peers == 1


def test_a_good_bye_is_believed_at_once() -> None:
    one, two = Replica("one"), Replica("two")
    two.gossip.hear(must(one.gossip.next_load()))
    two.gossip.hear(one.gossip.bye())
    assert two.events[-1] == PeerLost(100.0, "one")
    two.gossip.hear(one.gossip.bye())
    assert len([event for event in two.events if isinstance(event, PeerLost)]) == 1


def test_nobody_listens_to_himself() -> None:
    one = Replica("one")
    one.lessons.append(("backend",))
    for message in (must(one.gossip.next_load()), must(one.gossip.next_lessons()), one.gossip.bye()):
        one.gossip.hear(message)
    assert one.events == []


def test_other_versions_and_unknown_kinds_are_passed_over() -> None:
    two = Replica("two")
    for message in (
        [2, "lessons", "one", 0, [["x"]]],
        [1, "weather", "one", 0],
        [1, "lessons", "one", 0, [["x"]], [], "new"],
    ):
        two.gossip.hear(msgspec.msgpack.encode(message))
    assert two.learnt() == [("x",)]
    assert two.gossip.misunderstood == 0


@given(st.binary())
def test_any_bytes_are_survived(data: bytes) -> None:
    two = Replica("two")
    two.gossip.hear(data)
    assert lessons_in(data) == 0 or two.learnt()


def test_what_was_heard_is_remembered_for_a_bounded_number_of_replicas() -> None:
    two = Replica("two")
    for number in range(room.REPLICAS + 5):
        one = Replica(f"replica-{number}")
        one.lessons.append(("x",))
        two.gossip.hear(must(one.gossip.next_lessons()))
    assert len(two.gossip._heard) == room.REPLICAS
