"""Two replicas that gossip know what one replica knows that saw everything."""

import random
from collections.abc import Callable

import pytest

from policies.events import Arrived, Dispatched, Event, Finished, FirstToken, Joined
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings
from policies.snapshot import snapshot
from proxy.gossip import Gossip, Load

REQUESTS = 600
LANES = {"spec": ("speculative", 3), "plain": ("plain", 0)}
APPS = {"coder": 2.4, "summariser": 1.05}
"""Application → tokens per step on the speculative backend, whose steps take 1.3 times as long."""


class Replica:
    def __init__(self, name: str) -> None:
        self.fleet = Fleet(PolicySettings())
        self.gossip = Gossip(name, self.see, lambda: self.fleet.now, self.fleet.outbox, self.load)
        for backend, (lane, depth) in LANES.items():
            self.see(Joined(0.0, backend, lane, ("qwen",), "vllm", depth))

    def see(self, event: Event) -> None:
        advance(self.fleet, event)

    def load(self) -> list[Load]:
        return [
            Load(name, one.own_in_flight, one.own_waiting_tokens, one.own_prefilled)
            for name, one in self.fleet.backends.items()
        ]

    def taught(self) -> dict[str, int]:
        return {name: one.speed.completions for name, one in self.fleet.backends.items()}

    def knows(self) -> dict[str, dict[str, float | str]]:
        return {one["application"]: one for one in snapshot(self.fleet, self.fleet.now)["verdicts"]}


def traffic() -> list[tuple[float, list[Event]]]:
    """Requests as lists of events, one after the other, the same in every run."""
    dice, at, stories = random.Random(7), 1.0, list[tuple[float, list[Event]]]()
    for number in range(REQUESTS):
        app, backend = dice.choice(list(APPS)), dice.choice(list(LANES))
        tokens, per_step, step = dice.randint(100, 300), 1.0, 0.02
        if backend == "spec":
            per_step, step = APPS[app] * dice.uniform(0.9, 1.1), 0.026
        steps = max(1, round(tokens / max(1.0, per_step)))
        first, end = at + 0.1, at + 0.1 + steps * step * dice.uniform(0.95, 1.05)
        request = f"r{number}"
        ended = Finished(end, request, prompt_tokens=500, completion_tokens=tokens, events=tokens)
        if backend == "spec":
            ended = ended._replace(steps=steps, draft_tokens=3 * steps, accepted_tokens=tokens - steps)
        stories.append((at, [
            Arrived(at, request, "qwen", app, "chat", 2000, stream=True, temperature=0.0, fingerprint=number + 1),
            Dispatched(at, request, backend),
            FirstToken(first, request),
            ended,
        ]))  # fmt: skip
        at = end + 0.05
    return stories


def gossip(one: Replica, two: Replica, lose: Callable[[], bool]) -> None:
    for teller, hearer in ((one, two), (two, one)):
        while (message := teller.gossip.next_lessons()) is not None:
            hearer.gossip.hear(message)
            if lose():  # the answer of the carrier: the batch comes again
                break
            teller.gossip.told(message)
        if (load := teller.gossip.next_load()) is not None:
            hearer.gossip.hear(load)


@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_two_replicas_reach_the_verdicts_of_one(lost: float) -> None:
    alone, one, two = Replica("alone"), Replica("one"), Replica("two")
    dice = random.Random(3)
    for number, (_, events) in enumerate(traffic()):
        for event in events:
            alone.see(event)
            (one, two)[number % 2].see(event)
        if number % 5 == 4:
            gossip(one, two, lambda: dice.random() < lost)
    gossip(one, two, lambda: False)
    expected = alone.knows()
    assert {app: known["verdict"] for app, known in expected.items()} == {"coder": "pays", "summariser": "does not pay"}
    for replica in (one, two):
        for app, known in replica.knows().items():
            assert known["verdict"] == expected[app]["verdict"]
            # Not closer, and not the sample sizes: the change detector sees another order, and may forget once more.
            assert known["ratio"] == pytest.approx(expected[app]["ratio"], rel=0.03)
        assert replica.taught() == alone.taught()
