"""What the parent does with what its workers say, told as stories on a clock of the test's own."""

from collections import defaultdict, deque

from policies.events import Event, PeerLearnt, PeerLoad, PeerLost
from proxy.gossip import Gossip, Load
from proxy.metrics import Figures
from proxy.workers_channel import FIGURES, FIGURES_DECODER, STATE, Ask, Give, Given, Gossiped, Message, Ready, Told
from proxy.workers_hub import LESSONS_KEPT, PATIENCE_SECONDS, Hub
from proxy.workers_showing import packed_figures, together
from tests.scripted.clock import Clock

REQUESTS = "draftlane_app_requests_total"
RUNNING = "draftlane_requests_in_progress"


class Parent:
    """The hub, with notes of what it sent to whom."""

    def __init__(self, *workers: int) -> None:
        self.clock = Clock()
        self.sent: dict[int, list[Message]] = defaultdict(list)
        self.hub = Hub(lambda worker, message: self.sent[worker].append(message), self.clock)
        for worker in workers:
            self.begins(worker)

    def begins(self, worker: int) -> None:
        self.hub.joined(worker, f"w{worker}")
        self.hub.hear(worker, Ready())

    def to(self, worker: int) -> list[Message]:
        sent, self.sent[worker] = self.sent[worker], []
        return sent

    def asked(self, worker: int, data: bytes) -> None:
        """The worker answers whatever it was asked."""
        for message in self.to(worker):
            if isinstance(message, Give):
                self.hub.hear(worker, Given(message.number, data))

    def scraped(self, worker: int, figures: dict[int, Figures]) -> Figures:
        """The figures that a worker shows when every worker has these."""
        self.hub.hear(worker, Ask(1, FIGURES, packed_figures(figures[worker])))
        for other in figures:
            if other != worker:
                self.asked(other, packed_figures(figures[other]))
        [told] = [message for message in self.to(worker) if isinstance(message, Told)]
        return together([figures[worker], *map(FIGURES_DECODER.decode, told.parts)])


def counted(requests: float, running: float = 0.0) -> Figures:
    return {REQUESTS: {("app", "plain"): requests}, RUNNING: {("chat",): running}}


def test_the_sums_are_the_same_whichever_worker_is_asked() -> None:
    parent = Parent(1, 2, 3)
    figures = {1: counted(1, 1), 2: counted(20, 0), 3: counted(300, 2)}
    pages = [parent.scraped(worker, figures) for worker in figures]
    assert pages == [counted(321, 3)] * 3


def test_what_a_lost_worker_counted_stays_and_what_ran_on_it_does_not() -> None:
    parent = Parent(1, 2)
    parent.scraped(1, {1: counted(5, 2), 2: counted(7, 1)})
    parent.hub.left(1)
    assert parent.scraped(2, {2: counted(8, 1)}) == counted(13, 1)
    parent.begins(1)
    assert parent.scraped(2, {1: counted(1, 1), 2: counted(8, 1)}) == counted(14, 2)


def test_a_worker_that_does_not_answer_counts_as_it_did_last() -> None:
    parent = Parent(1, 2)
    parent.scraped(1, {1: counted(5), 2: counted(7)})
    parent.hub.hear(1, Ask(9, FIGURES, packed_figures(counted(6))))
    parent.hub.tick()
    assert not parent.to(1)
    parent.clock.advance(PATIENCE_SECONDS)
    parent.hub.tick()
    assert parent.to(1) == [Told(9, [packed_figures(counted(7))])]


def test_a_worker_that_leaves_in_the_middle_of_a_question_does_not_hold_it_up() -> None:
    parent = Parent(1, 2)
    parent.hub.hear(1, Ask(4, STATE, b"own"))
    parent.hub.left(2)
    assert [message for message in parent.to(1) if isinstance(message, Told)] == [Told(4, [])]


def test_the_answer_to_a_worker_that_left_goes_nowhere() -> None:
    parent = Parent(1, 2)
    parent.hub.hear(1, Ask(4, STATE, b"own"))
    parent.hub.left(1)
    parent.asked(2, b"late")
    assert parent.to(1) == []


def test_workers_that_do_not_serve_yet_are_not_asked() -> None:
    parent = Parent(1)
    parent.hub.joined(2, "w2")
    parent.hub.hear(1, Ask(1, STATE, b"own"))
    assert parent.to(1) == [Told(1, [])]


class Learner:
    """A worker, as far as learning goes."""

    def __init__(self, parent: Parent, worker: int, name: str) -> None:
        self.parent, self.worker = parent, worker
        self.events: list[Event] = []
        self.lessons: deque[tuple[int, ...]] = deque()
        self.in_flight = 0
        self.gossip = Gossip(name, self.events.append, parent.clock, self.lessons, self._load)

    def _load(self) -> list[Load]:
        return [Load("plain-1", self.in_flight, 0.0, 0.0)]

    def tells(self) -> None:
        while (message := self.gossip.next_lessons()) is not None:
            self.parent.hub.hear(self.worker, Gossiped(message))
            self.gossip.told(message)
        if (load := self.gossip.next_load()) is not None:
            self.parent.hub.hear(self.worker, Gossiped(load))

    def hears(self) -> None:
        for message in self.parent.to(self.worker):
            assert isinstance(message, Gossiped)
            self.gossip.hear(message.data)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def test_workers_learn_from_each_other_and_know_each_others_load() -> None:
    parent = Parent(1, 2)
    one, two = Learner(parent, 1, "w1"), Learner(parent, 2, "w2")
    one.lessons += [(1,), (2,)]
    one.in_flight = 3
    one.tells()
    two.hears()
    assert [event.facts for event in two.events if isinstance(event, PeerLearnt)] == [(1,), (2,)]
    assert [event.in_flight for event in two.events if isinstance(event, PeerLoad)] == [3]
    assert parent.to(1) == []


def test_the_load_of_a_lost_worker_is_forgotten_at_once() -> None:
    parent = Parent(1, 2)
    one, two = Learner(parent, 1, "w1"), Learner(parent, 2, "w2")
    one.in_flight = 3
    one.tells()
    parent.hub.left(1)
    two.hears()
    assert [type(event) for event in two.events] == [PeerLoad, PeerLost]


def test_the_next_worker_hears_what_was_learnt_before_it() -> None:
    parent = Parent(1, 2)
    one = Learner(parent, 1, "w1")
    for number in range(LESSONS_KEPT + 100):
        one.lessons.append((number,))
        one.tells()
    parent.hub.left(2)
    parent.to(2)
    parent.hub.joined(2, "w2-again")
    two = Learner(parent, 2, "w2-again")
    two.hears()
    heard = [event.facts[0] for event in two.events if isinstance(event, PeerLearnt)]
    assert heard == list(range(100, LESSONS_KEPT + 100))


def test_siblings_are_no_peers_on_the_page() -> None:
    def figures(own: float, peers: float) -> Figures:
        return {
            "draftlane_backend_in_flight": {("b", "plain"): own},
            "draftlane_backend_peer_in_flight": {("b", "plain"): peers},
            "draftlane_peers": {(): 3.0},
        }

    page = together([figures(1, 6), figures(4, 3), {}])
    assert page["draftlane_backend_in_flight"] == {("b", "plain"): 5}
    assert page["draftlane_backend_peer_in_flight"] == {("b", "plain"): 2}
    assert page["draftlane_peers"] == {(): 2.0}
