"""Playbooks: what went by, what is decided next, and what it says of itself."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from policies.admission import may_retry
from policies.alarms import ALARMS, alarms
from policies.decide import POLICIES, decide
from policies.decision import DECODE_HEAVY, NEVER, PROMPT_HEAVY, Decision, NoBackend, Overloaded
from policies.events import (
    Arrived,
    Cancelled,
    Dispatched,
    Event,
    Finished,
    FirstToken,
    Joined,
    PeerLearnt,
    Scraped,
)
from policies.explain import explain
from policies.fleet import Fleet, Lesson, advance
from policies.keepsake import keep, restore
from policies.peers import read_facts
from policies.replay import compare, replay
from policies.settings import PolicyName, PolicySettings
from policies.snapshot import snapshot

CALM = replace(PolicySettings(), explore_share=0.0)
"""No exploration, so that a single decision can be stated."""


def arrival(number: int, app: str = "writer", **more: object) -> Arrived:
    known: dict[str, object] = {
        "model": "m", "app": app, "surface": "chat", "prompt_bytes": 400, "stream": True,
        "draw": (number * 7919 % 1000) / 1000, "choice": (number * 104729 % 1000) / 1000, "fingerprint": number + 1,
    }  # fmt: skip
    return Arrived(float(number), f"r{number}", **(known | more))  # type: ignore[arg-type]  # fields by name


def answer(arrived: Arrived, backend: str, tokens: int, prompt: int, accepted: float = 0.5) -> Iterator[Event]:
    """What a modelled backend does: 10 ms a step, 12 ms with drafts; 0.1 ms a prompt token."""
    fast = backend.startswith("fast")
    share = accepted if fast else 0.0
    steps = max(1, round((tokens - 1) * (1.0 - share)))
    first = arrived.at + 0.01 + 1e-4 * prompt
    yield FirstToken(first, arrived.id)
    yield Finished(
        first + steps * (0.012 if fast else 0.010), arrived.id, 200, prompt, 0, tokens, finish_reason="stop",
        events=steps + 1, steps=steps if fast else None, draft_tokens=3 * steps if fast else None,
        accepted_tokens=tokens - 1 - steps if fast else None,
    )  # fmt: skip


def joined() -> list[Event]:
    return [
        Joined(0.0, "fast", "speculative", ("m",), depth=3),
        Joined(0.0, "plain", "plain", ("m",), depth=0),
    ]


def run(fleet: Fleet, arrived: Arrived, tokens: int, prompt: int, accepted: float = 0.5) -> list[Event]:
    """One request through the fleet; the events in their order."""
    advance(fleet, arrived)
    verdict = decide(fleet, arrived)
    assert isinstance(verdict, Decision)
    past: list[Event] = [arrived, Dispatched(arrived.at, arrived.id, verdict.backend)]
    past += answer(arrived, verdict.backend, tokens, prompt, accepted)
    for event in past[1:]:
        advance(fleet, event)
    return past


def day(settings: PolicySettings = CALM, requests: int = 120, accepted: float = 0.5) -> tuple[Fleet, list[Event]]:
    """Writers with long answers to short prompts, readers with short answers to long prompts."""
    fleet, journal = Fleet(settings), joined()
    for event in journal:
        advance(fleet, event)
    for number in range(requests):
        if number % 2:
            journal += run(fleet, arrival(number), 400, 100, accepted)
        else:
            reader = arrival(number, "reader", prompt_bytes=40_000)
            journal += run(fleet, reader, 10, 10_000, accepted)
    return fleet, journal


def judged(fleet: Fleet, arrived: Arrived) -> Decision:
    verdict = decide(fleet, arrived)
    assert isinstance(verdict, Decision)
    return verdict


def crowd(fleet: Fleet, backend: str, count: int, prompt_bytes: int = 400) -> None:
    for number in range(count):
        name = f"{backend}{number}"
        advance(fleet, arrival(1000 + number, prompt_bytes=prompt_bytes)._replace(id=name))
        advance(fleet, Dispatched(1000.0 + number, name, backend))
        advance(fleet, FirstToken(1000.5 + number, name))


def test_a_writer_goes_to_the_lane_where_its_tokens_are_cheaper() -> None:
    fleet, _ = day()
    verdict = judged(fleet, arrival(500))
    assert (verdict.backend, verdict.lane, verdict.workload) == ("fast", "speculative", DECODE_HEAVY)
    assert verdict.break_even is not None
    assert verdict.ratio > verdict.break_even
    assert verdict.costs[0][0] == "fast"
    assert verdict.alternates == ("plain",)
    assert 300 < verdict.output_tokens < 500


def test_a_reader_leaves_a_crowd_of_writers_alone() -> None:
    fleet, _ = day()
    crowd(fleet, "fast", 12)
    crowd(fleet, "plain", 2)
    verdict = judged(fleet, arrival(2000, "reader", prompt_bytes=40_000))
    assert (verdict.lane, verdict.workload) == ("plain", PROMPT_HEAVY)


def test_without_acceptance_the_speculative_lane_is_spare_capacity_only() -> None:
    fleet, _ = day(accepted=0.0)
    verdict = judged(fleet, arrival(500))
    assert verdict.lane == "plain"
    assert verdict.break_even == NEVER
    crowd(fleet, "plain", 30)
    assert judged(fleet, arrival(2000)).lane == "speculative"


def test_a_session_stays_where_its_prompt_is_cached() -> None:
    fleet, _ = day()
    turn = arrival(500, "agent", prompt_bytes=200_000, prefixes=((7, 150_000), (8, 200_000)))
    advance(fleet, turn)
    advance(fleet, Dispatched(500.0, turn.id, "plain"))
    advance(fleet, Cancelled(501.0, turn.id))
    turns = ((7, 150_000), (8, 200_000), (9, 210_000))
    verdict = judged(fleet, arrival(502, "agent", prompt_bytes=210_000, prefixes=turns))
    assert verdict.backend == "plain"
    assert verdict.uncached_tokens < 0.3 * verdict.input_tokens
    fresh = judged(fleet, arrival(503, "agent", prompt_bytes=210_000))
    assert fresh.uncached_tokens == fresh.input_tokens


def test_within_a_near_tie_the_session_keeps_its_backend() -> None:
    fleet = Fleet(CALM)
    for name in ("plain1", "plain2"):
        advance(fleet, Joined(0.0, name, "plain", ("m",)))
    for number in range(40):
        run(fleet, arrival(number), 100, 100)
    known = arrival(500, prefixes=((5, 40),))
    advance(fleet, known)
    advance(fleet, Dispatched(500.0, known.id, "plain2"))
    advance(fleet, Cancelled(500.1, known.id))
    assert judged(fleet, arrival(501, prefixes=((5, 40), (6, 400)))).backend == "plain2"


def test_lane_rules_and_forced_lanes_come_before_cost_and_yield_when_nobody_is_left() -> None:
    fleet, _ = day()
    ruled = judged(fleet, arrival(500, features=("min_p",)))
    assert (ruled.lane, ruled.reason) == ("plain", "lane-rule:min_p")
    forced = judged(fleet, arrival(500, forced_lane="plain"))
    assert (forced.lane, forced.reason) == ("plain", "forced")
    assert judged(fleet, arrival(500, features=("min_p",), excluded=("plain",))).backend == "fast"


def test_a_few_draws_explore_and_only_near_ties() -> None:
    fleet, _ = day(PolicySettings())
    cheap = arrival(500, draw=0.005, choice=0.9)
    assert judged(fleet, cheap).reason in ("explore", "break-even")
    crowd(fleet, "plain", 40)
    assert judged(fleet, cheap._replace(at=2000.0)).backend == "fast"


def test_one_backend_needs_no_weighing() -> None:
    fleet = Fleet(CALM)
    advance(fleet, Joined(0.0, "only", "plain", ()))
    verdict = judged(fleet, arrival(1))
    assert (verdict.backend, verdict.reason, verdict.break_even) == ("only", "only-backend", None)
    assert may_retry(fleet)


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_ranks_all_candidates(name: PolicyName) -> None:
    fleet, _ = day(replace(CALM, name=name), requests=60)
    verdict = judged(fleet, arrival(500))
    assert sorted((verdict.backend, *verdict.alternates)) == ["fast", "plain"]
    assert verdict.policy == name
    assert explain(verdict)


def test_baselines_do_what_they_are_called() -> None:
    lanes = {}
    for name in ("all-plain", "all-speculative", "round-robin", "least-load"):
        _, journal = day(replace(CALM, name=name), requests=20)
        lanes[name] = [event.backend for event in journal if isinstance(event, Dispatched)]
    assert set(lanes["all-plain"]) == {"plain"}
    assert set(lanes["all-speculative"]) == {"fast"}
    assert lanes["round-robin"][:4] == ["fast", "plain", "fast", "plain"]
    assert set(lanes["least-load"]) == {"fast", "plain"}


def test_the_fixed_ratio_spills_from_a_crowded_lane() -> None:
    fleet, _ = day(replace(CALM, name="fixed-ratio"))
    assert judged(fleet, arrival(500)).backend == "fast"
    crowd(fleet, "fast", 8)
    spilled = judged(fleet, arrival(2000))
    assert (spilled.backend, spilled.reason) == ("plain", "spill")


def test_replay_gives_the_same_decisions_to_the_last_bit() -> None:
    _, journal = day(PolicySettings())
    first = [repr(verdict) for _, verdict in replay(journal, PolicySettings())]
    second = [repr(verdict) for _, verdict in replay(journal, PolicySettings())]
    sent = [event.backend for event in journal if isinstance(event, Dispatched)]
    assert first == second
    assert [v.backend for _, v in replay(journal, PolicySettings()) if isinstance(v, Decision)] == sent


def test_other_settings_tell_what_would_have_changed() -> None:
    _, journal = day()
    told = compare(journal, CALM, replace(CALM, name="all-plain"), keep=5)
    assert told.requests == 120
    assert told.changed_requests == dict(told.lanes)["speculative→plain"] > 20
    assert len(told.changed) == 5
    assert compare(journal, CALM, CALM).changed_requests == 0


def test_a_decision_explains_itself_in_sentences() -> None:
    fleet, _ = day()
    told = explain(judged(fleet, arrival(500)), fleet)
    assert all(sentence.endswith(".") for sentence in told)
    text = " ".join(told)
    for part in ("break-even ratio", "decode-heavy", "fast costs least", "a step yields about", "Should it fail"):
        assert part in text
    assert "No backend serves" in " ".join(explain(NoBackend("r", "m", "unknown-model")))
    assert "free in 3 s" in " ".join(explain(Overloaded("r", "m", 3.0)))


def test_the_snapshot_is_plain_data_with_sample_sizes() -> None:
    fleet, _ = day()
    shown = json.loads(json.dumps(snapshot(fleet, 130.0)))
    fast = next(backend for backend in shown["backends"] if backend["name"] == "fast")
    assert fast["acceptance"]["requests"] > 20
    assert fast["acceptance"]["rate"] == pytest.approx(1 / 3, rel=0.05)
    assert fast["acceptance"]["tokens_per_step"] == pytest.approx(2.0, rel=0.05)
    assert shown["break_even"]["m"]["ratio"] is not None
    assert {one["name"] for one in shown["applications"]} == {"reader", "writer"}
    assert shown["predictor"]["within_2x"] > 0.9
    assert all(alarm["kind"] in ALARMS for alarm in shown["alarms"])


def test_alarms_stand_while_they_are_true() -> None:
    fleet, _ = day(replace(CALM, name="all-speculative"), accepted=0.0)
    assert "draft-mismatch" in {alarm.kind for alarm in alarms(fleet, 130.0)}
    advance(fleet, Scraped(130.0, "plain", drafts=0.0, draft_tokens=0.0, generated_tokens=10.0))
    assert "stale-scrape" not in {alarm.kind for alarm in alarms(fleet, 140.0)}
    stale = {(alarm.kind, alarm.subject) for alarm in alarms(fleet, 300.0)}
    assert ("stale-scrape", "plain") in stale
    advance(fleet, Scraped(301.0, "plain", drafts=50.0, draft_tokens=150.0, generated_tokens=100.0))
    kinds = {(alarm.kind, alarm.subject) for alarm in alarms(fleet, 302.0)}
    assert ("plain-speculates", "plain") in kinds
    assert ("stale-scrape", "plain") not in kinds


def test_what_was_learnt_survives_a_restart() -> None:
    fleet, _ = day()
    kept = json.loads(json.dumps(keep(fleet)))
    again = Fleet(CALM)
    for event in joined():
        advance(again, event)
    restore(again, kept)
    before, after = judged(fleet, arrival(500)), judged(again, arrival(500))
    assert after.reason == "break-even"
    assert (after.backend, after.output_tokens) == (before.backend, before.output_tokens)
    assert after.break_even == pytest.approx(before.break_even)
    assert keep(again) == keep(fleet) | {"backends": keep(again)["backends"]}


@pytest.mark.parametrize("damage", [{}, {"version": 99}, {"version": 2}, {"version": 2, "backends": {"fast": 3}}])
def test_a_damaged_keepsake_is_refused_with_a_reason(damage: dict[str, object]) -> None:
    fleet = Fleet(CALM)
    for event in joined():
        advance(fleet, event)
    with pytest.raises(ValueError, match="the kept state"):
        restore(fleet, damage)


def test_a_replica_that_hears_all_lessons_decides_like_the_one_that_served() -> None:
    fleet, _ = day()
    other = Fleet(CALM)
    for event in joined():
        advance(other, event)
    told = [PeerLearnt(200.0, "first", number, tuple(lesson)) for number, lesson in enumerate(fleet.outbox)]
    for learnt in (*told, *told[:30]):
        advance(other, learnt)
    mine, theirs = judged(fleet, arrival(500)), judged(other, arrival(500))
    assert mine.costs == theirs.costs
    assert mine.output_tokens == theirs.output_tokens


def test_what_ends_at_its_cap_counts_on_every_replica_and_what_its_client_left_on_none() -> None:
    fleet, other = Fleet(CALM), Fleet(CALM)
    for event in joined():
        advance(fleet, event)
        advance(other, event)
    for number, ends in enumerate((True, True, False)):
        arrived = arrival(number, cap=50, n=1 + number % 2)
        advance(fleet, arrived)
        advance(fleet, Dispatched(arrived.at, arrived.id, "plain"))
        advance(fleet, FirstToken(arrived.at + 0.1, arrived.id))
        over = arrived.at + 0.5
        advance(
            fleet,
            Finished(over, arrived.id, 200, 100, 0, 50 * arrived.n, finish_reason="length", events=50)
            if ends
            else Cancelled(over, arrived.id, 20),
        )
    for number, lesson in enumerate(fleet.outbox):
        advance(other, PeerLearnt(9.0, "first", number, tuple(lesson)))
    assert len(fleet.outbox) == 3
    assert fleet.backends["plain"].finished == other.backends["plain"].finished == 2
    assert other.lengths.histograms.keys() == fleet.lengths.histograms.keys()


def test_facts_that_are_no_lesson_are_ignored() -> None:
    fleet, _ = day(requests=4)
    good = tuple(fleet.outbox[0])
    assert read_facts(good) == fleet.outbox[0]
    assert read_facts((*good, "a newer field")) == fleet.outbox[0]
    assert read_facts(good[:5]) is None
    assert read_facts(("b", 3, *good[2:])) is None
    assert isinstance(read_facts(good), Lesson)


def test_repeated_prompts_have_a_class_of_their_own() -> None:
    fleet, _ = day()
    advance(fleet, arrival(500, fingerprint=7777))
    advance(fleet, arrival(501, fingerprint=7777))
    assert fleet.live["r500"].gain_class == "m|writer|text|default"
    assert fleet.live["r501"].gain_class == "m|writer|text|repeated"
