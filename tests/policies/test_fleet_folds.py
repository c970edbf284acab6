"""The fold: counts go up and down, unknown things change nothing, health decides who is a candidate."""

from dataclasses import replace

from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from policies.decide import decide
from policies.decision import Decision, NoBackend, Overloaded
from policies.events import (
    FAULTS,
    Arrived,
    Cancelled,
    Dispatched,
    Event,
    Failed,
    Finished,
    FirstToken,
    Joined,
    Left,
    PeerLearnt,
    PeerLoad,
    PeerLost,
    Probed,
    Pulse,
    Refused,
    Scraped,
)
from policies.fleet import Fleet, advance
from policies.settings import AdmissionSettings, PolicySettings


def two_lanes(settings: PolicySettings | None = None) -> Fleet:
    fleet = Fleet(settings or PolicySettings())
    advance(fleet, Joined(0.0, "fast", "speculative", ("m",), depth=3))
    advance(fleet, Joined(0.0, "plain", "plain", ("m",), depth=0))
    return fleet


def ask(name: str, at: float = 1.0, **more: object) -> Arrived:
    known: dict[str, object] = {"model": "m", "app": "a", "surface": "chat", "prompt_bytes": 400, "stream": True}
    return Arrived(at, name, **(known | more))  # type: ignore[arg-type]  # fields by name, as the test gives them


def send(fleet: Fleet, arrived: Arrived) -> str:
    """Advance, decide, dispatch; the backend."""
    advance(fleet, arrived)
    verdict = decide(fleet, arrived)
    assert isinstance(verdict, Decision)
    advance(fleet, Dispatched(arrived.at, arrived.id, verdict.backend))
    return verdict.backend


def hangs(fleet: Fleet, name: str) -> bool:
    return fleet.backends[name].stalled


def test_counts_follow_a_request_from_dispatch_to_its_end() -> None:
    fleet = two_lanes()
    backend = fleet.backends[send(fleet, ask("r", prompt_tokens=100))]
    assert (backend.in_flight, backend.waiting_tokens, backend.prefilled) == (1, 100.0, 0.0)
    advance(fleet, FirstToken(2.0, "r"))
    assert (backend.in_flight, backend.waiting_tokens, backend.prefilled) == (1, 0.0, 100.0)
    advance(fleet, Finished(4.0, "r", completion_tokens=50))
    assert (backend.in_flight, backend.waiting_tokens) == (0, 0.0)
    assert backend.crowd_integral == 2.0
    assert fleet.live == {}


def test_a_request_that_moves_is_counted_once() -> None:
    fleet = two_lanes()
    advance(fleet, ask("r"))
    advance(fleet, Dispatched(1.0, "r", "fast"))
    advance(fleet, Dispatched(2.0, "r", "plain"))
    assert (fleet.backends["fast"].in_flight, fleet.backends["plain"].in_flight) == (0, 1)
    advance(fleet, Failed(3.0, "r", "fast", "closed", final=False))
    assert fleet.backends["plain"].in_flight == 1


def test_answers_that_do_not_stream_count_as_prefilled_after_the_expected_time() -> None:
    fleet = two_lanes()
    backend = fleet.backends[send(fleet, ask("r", stream=False, prompt_tokens=100))]
    send(fleet, ask("later", at=30.0))
    assert backend.prefilled == 100.0
    assert backend.waiting_tokens in (0.0, 100.0)


def test_a_backend_rests_after_three_failures_in_a_row_and_comes_back_by_a_trial() -> None:
    fleet = two_lanes()
    for number in range(3):
        name = f"f{number}"
        advance(fleet, ask(name))
        advance(fleet, Dispatched(1.0, name, "fast"))
        advance(fleet, Failed(1.0, name, "fast", "connect"))
    assert [send(fleet, ask(f"n{number}")) for number in range(4)] == ["plain"] * 4
    assert send(fleet, ask("trial", at=7.0)) == "fast"
    assert send(fleet, ask("next", at=7.1)) == "plain"
    advance(fleet, Finished(8.0, "trial", completion_tokens=3))
    assert send(fleet, ask("back", at=8.0)) == "fast"


def test_a_failed_trial_doubles_the_rest() -> None:
    fleet = two_lanes()
    for at in (1.0, 1.0, 1.0, 7.0):
        advance(fleet, ask(f"f{at}", at=at))
        advance(fleet, Dispatched(at, f"f{at}", "fast"))
        advance(fleet, Failed(at, f"f{at}", "fast", "closed", final=False))
    assert fleet.backends["fast"].breaker.reopens_at == 17.0


def test_busy_and_client_errors_are_not_illness() -> None:
    fleet = two_lanes()
    for number in range(9):
        name = f"f{number}"
        advance(fleet, ask(name))
        advance(fleet, Dispatched(1.0, name, "fast"))
        advance(fleet, Failed(1.0, name, "fast", "busy", 429) if number % 2 else Finished(1.0, name, status=400))
    assert fleet.backends["fast"].breaker.state == "closed"
    assert send(fleet, ask("now")) == "plain"
    assert send(fleet, ask("later", at=3.0)) == "fast"


def test_a_good_health_check_ends_the_rest_early() -> None:
    fleet = two_lanes()
    for _ in range(3):
        advance(fleet, Probed(1.0, "fast", ok=False))
    assert send(fleet, ask("a", at=1.5)) == "plain"
    advance(fleet, Probed(2.0, "fast", ok=True))
    assert send(fleet, ask("b", at=2.0)) == "fast"


def test_a_hung_backend_gets_nothing_until_it_is_heard_again() -> None:
    fleet = two_lanes()
    advance(fleet, ask("r"))
    advance(fleet, Dispatched(1.0, "r", "fast"))
    advance(fleet, FirstToken(1.1, "r"))
    advance(fleet, Pulse(2.0, "fast", 1.9, 0.05))
    assert not hangs(fleet, "fast")
    advance(fleet, Pulse(3.5, "fast", 1.9, 0.05))
    assert hangs(fleet, "fast")
    assert [send(fleet, ask(f"n{number}", at=3.6)) for number in range(3)] == ["plain"] * 3
    advance(fleet, Pulse(4.0, "fast", 3.9, 2.0))
    assert send(fleet, ask("back", at=4.1)) == "fast"


def test_a_long_prefill_is_not_a_stall() -> None:
    fleet = two_lanes()
    advance(fleet, ask("r", prompt_tokens=150_000))
    advance(fleet, Dispatched(1.0, "r", "fast"))
    advance(fleet, Pulse(9.0, "fast", 1.0, 0.0))
    assert not hangs(fleet, "fast")


def test_when_nobody_is_well_somebody_is_tried_all_the_same() -> None:
    fleet = two_lanes()
    for name in ("fast", "plain"):
        for _ in range(3):
            advance(fleet, Probed(1.0, name, ok=False))
    assert isinstance(decide(fleet, ask("r", at=1.0)), Decision)


def test_no_backend_says_why() -> None:
    fleet = two_lanes()
    assert decide(fleet, ask("r", model="other")) == NoBackend("r", "other", "unknown-model")
    assert decide(fleet, ask("r", excluded=("fast", "plain"))) == NoBackend("r", "m", "none-healthy")
    for name in ("fast", "plain"):
        advance(fleet, Joined(1.0, name, "plain", ("m",), max_context_tokens=1000))
    assert decide(fleet, ask("r", prompt_tokens=1001)) == NoBackend("r", "m", "too-long")


def test_a_full_fleet_says_when_to_come_back() -> None:
    fleet = two_lanes(replace(PolicySettings(), admission=AdmissionSettings(max_in_flight=1)))
    assert {send(fleet, ask("a")), send(fleet, ask("b"))} == {"fast", "plain"}
    assert decide(fleet, ask("c")) == Overloaded("c", "m", 1.0)
    advance(fleet, Cancelled(2.0, "a"))
    assert isinstance(decide(fleet, ask("c")), Decision)


def test_a_draining_backend_finishes_and_gets_nothing_new() -> None:
    fleet = two_lanes()
    advance(fleet, Joined(1.0, "fast", "speculative", ("m",), draining=True))
    assert [send(fleet, ask(f"n{number}")) for number in range(3)] == ["plain"] * 3
    advance(fleet, Left(2.0, "plain"))
    assert decide(fleet, ask("r")) == NoBackend("r", "m", "none-healthy")


def test_a_backend_that_changes_lanes_keeps_its_requests_and_forgets_its_lessons() -> None:
    fleet = two_lanes()
    advance(fleet, ask("r"))
    advance(fleet, Dispatched(1.0, "r", "fast"))
    advance(fleet, Joined(2.0, "fast", "plain", ("m",)))
    assert fleet.backends["fast"].in_flight == 1
    advance(fleet, Finished(3.0, "r", completion_tokens=5))
    assert fleet.backends["fast"].in_flight == 0


def test_peers_add_their_load_and_take_it_with_them() -> None:
    fleet = two_lanes()
    advance(fleet, PeerLoad(1.0, "other", 5, "fast", 7, 300.0, 1000.0))
    advance(fleet, PeerLoad(1.0, "other", 4, "fast", 99, 0.0, 0.0))
    fast = fleet.backends["fast"]
    assert (fast.in_flight, fast.waiting_tokens, fast.prefilled) == (7, 300.0, 0.0)
    advance(fleet, PeerLoad(2.0, "other", 6, "fast", 2, 0.0, 1300.0))
    assert (fast.in_flight, fast.prefilled, fast.crowd_integral) == (2, 300.0, 7.0)
    advance(fleet, PeerLost(3.0, "other"))
    assert fast.in_flight == 0


def test_a_refusal_is_remembered() -> None:
    fleet = two_lanes(replace(PolicySettings(), lane_rules={}))
    advance(fleet, ask("r", features=("grammar",)))
    advance(fleet, Dispatched(1.0, "r", "fast"))
    advance(fleet, Refused(1.1, "r", "fast", "grammar"))
    assert fleet.backends["fast"].in_flight == 0
    verdict = decide(fleet, ask("s", features=("grammar",)))
    assert isinstance(verdict, Decision)
    assert (verdict.backend, verdict.reason) == ("plain", "lane-rule:grammar")


def test_the_retry_budget_is_spent_by_retries_and_refilled_by_arrivals() -> None:
    fleet = two_lanes(replace(PolicySettings(), admission=AdmissionSettings(retry_burst=1, retry_share=0.5)))
    advance(fleet, ask("r"))
    advance(fleet, Failed(1.0, "r", "fast", "connect", final=False))
    assert fleet.retries == 0.0
    advance(fleet, ask("s"))
    advance(fleet, ask("t"))
    assert fleet.retries == 1.0


IDS = st.sampled_from([f"r{number}" for number in range(6)])
BACKENDS = st.sampled_from(["fast", "plain", "third"])
TIMES = st.floats(0.0, 1000.0)
COUNTS = st.none() | st.integers(0, 5000)


def events() -> st.SearchStrategy[Event]:
    """Any event, in any order, with any of a few ids."""
    prefixes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9000)), max_size=3).map(tuple)
    return st.one_of(
        st.builds(
            Arrived, TIMES, IDS, st.just("m"), st.sampled_from(["a", "b"]), st.just("chat"), st.integers(0, 9000),
            cap=st.none() | st.integers(0, 100), n=st.integers(1, 2), stream=st.booleans(), media=st.integers(0, 1),
            fingerprint=st.integers(0, 3), draw=st.floats(0, 0.99), choice=st.floats(0, 0.99), prefixes=prefixes,
            features=st.sampled_from([(), ("min_p",), ("tools",)]), excluded=st.sampled_from([(), ("fast",)]),
        ),
        st.builds(Dispatched, TIMES, IDS, BACKENDS),
        st.builds(FirstToken, TIMES, IDS),
        st.builds(
            Finished, TIMES, IDS, st.sampled_from([200, 400]), COUNTS, COUNTS, COUNTS, COUNTS,
            st.sampled_from([None, "stop", "length"]), st.integers(0, 5000), COUNTS, COUNTS, COUNTS,
            output_repeats=st.booleans(),
        ),
        st.builds(Failed, TIMES, IDS, BACKENDS, st.sampled_from(FAULTS), st.none(), st.booleans()),
        st.builds(Cancelled, TIMES, IDS, st.integers(0, 99), COUNTS),
        st.builds(Refused, TIMES, IDS, BACKENDS, st.sampled_from(["min_p", "x"])),
        st.builds(Joined, TIMES, BACKENDS, st.sampled_from(["speculative", "plain"]), draining=st.booleans(),
                  depth=st.none() | st.integers(0, 8), max_requests=st.none() | st.integers(1, 4)),
        st.builds(Left, TIMES, BACKENDS),
        st.builds(Probed, TIMES, BACKENDS, st.booleans()),
        st.builds(Pulse, TIMES, BACKENDS, TIMES, st.floats(0, 100)),
        st.builds(Scraped, TIMES, BACKENDS, COUNTS, COUNTS, drafts=COUNTS, draft_tokens=COUNTS, accepted_tokens=COUNTS,
                  generated_tokens=COUNTS, acceptance_length=st.none() | st.floats(0, 9)),
        st.builds(PeerLoad, TIMES, st.just("p"), st.integers(0, 9), BACKENDS, st.integers(0, 9), TIMES, TIMES),
        st.builds(PeerLearnt, TIMES, st.just("p"), st.integers(0, 9), st.just((1, "x"))),
        st.builds(PeerLost, TIMES, st.just("p")),
    )  # fmt: skip


@given(st.lists(events(), max_size=60))
@given_settings(max_examples=300, deadline=None)
def test_no_order_of_events_breaks_the_fold_and_all_counts_return_to_zero(history: list[Event]) -> None:
    fleet = two_lanes()
    for event in history:
        advance(fleet, event)
        if isinstance(event, Arrived):
            decide(fleet, event)
        for backend in fleet.backends.values():
            assert backend.own_in_flight >= 0
            assert backend.speed.base > 0.0
    for name in list(fleet.live):
        advance(fleet, Cancelled(2000.0, name))
    advance(fleet, PeerLost(2000.0, "p"))
    for backend in fleet.backends.values():
        assert (backend.in_flight, backend.without_first, backend.waiting_tokens) == (0, 0, 0.0)
        assert backend.breaker.trying == 0


def test_memory_is_bounded() -> None:
    fleet = two_lanes(replace(PolicySettings(), max_requests=50))
    for number in range(300):
        send(fleet, ask(f"r{number}", fingerprint=number + 1, app=f"a{number}"))
    assert len(fleet.live) == 50
    assert sum(backend.in_flight for backend in fleet.backends.values()) == 50


def flood(fleet: Fleet, requests: int, seconds: float, app: str) -> None:
    for number in range(requests):
        at = 1.0 + seconds * number / requests
        send(fleet, ask(f"{app}-{number}", at, app=app, forced_lane="plain"))
        advance(fleet, Finished(at + 0.01, f"{app}-{number}", 200, 100, 0, 50, finish_reason="stop"))


def test_a_flood_of_one_class_teaches_no_more_than_its_share_and_is_counted_whole() -> None:
    fleet = two_lanes()
    flood(fleet, 1000, 1.0, "loud")
    assert 50 <= fleet.backends["plain"].speed.completions <= 72  # a burst of 50, and 20 for the second that passed
    assert fleet.backends["plain"].finished == fleet.applications.by_name["loud"].requests == 1000
    flood(fleet, 10, 1.0, "quiet")
    assert fleet.applications.by_name["quiet"].weight > 9, "another class has a share of its own"


def test_without_a_limit_every_request_teaches() -> None:
    fleet = two_lanes(PolicySettings(lessons_per_second=0.0))
    flood(fleet, 300, 1.0, "loud")
    assert fleet.backends["plain"].speed.completions == 300
