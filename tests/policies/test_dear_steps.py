"""An n-gram drafter on a CPU, in the figures of a measurement: dear prompts, dear steps for who is drafted for, and a gain all the same.

Copied code: 160 tokens in 15 steps of 0.24 s against 0.0285 s a token plain. Prose: nothing is drafted, steps cost alike.
A prompt token takes 5 ms on either lane.
"""

import pytest

from policies.decide import decide
from policies.decision import SPECULATIVE, Decision
from policies.events import Arrived, Dispatched, Finished, FirstToken, Joined
from policies.fleet import Fleet, advance
from policies.gain import PAYS
from policies.settings import PolicySettings, VerdictSettings

PROMPT, COPIED, PROSE = 320, 160, 24
PREFILL, PLAIN_STEP, DRAFTED_STEP, STEPS = 0.005, 0.0285, 0.24, 15
RULES = VerdictSettings(min_requests=5, memory_requests=40, dwell_seconds=1.0)


def wobble(number: int) -> float:
    """A fixed sequence around 1, within 6 %."""
    return 1.0 + 0.06 * ((number * 7919) % 11 - 5) / 5


def ask(number: int, app: str, lane: str | None) -> Arrived:
    size = 4 * (PROMPT if app == "editor" else 20)
    return Arrived(10.0 * number, f"r{number}", "m", app, "chat", size, stream=True, cap=500, temperature=0.0,
                   fingerprint=number + 1, forced_lane=lane, prompt_tokens=size // 4)  # fmt: skip


def serve(fleet: Fleet, number: int, app: str, lane: str, tells: bool) -> None:
    arrived = ask(number, app, lane)
    advance(fleet, arrived)
    advance(fleet, Dispatched(arrived.at, arrived.id, lane))
    tokens, prompt = (COPIED, PROMPT) if app == "editor" else (PROSE, 20)
    first = arrived.at + (PREFILL * prompt + PLAIN_STEP) * wobble(number + 3)
    drafted = app == "editor" and lane == SPECULATIVE
    seconds = (STEPS * DRAFTED_STEP if drafted else tokens * PLAIN_STEP) * wobble(number)
    accepted = tokens - 1 - STEPS if drafted and tells else 0
    advance(fleet, FirstToken(first, arrived.id))
    advance(fleet, Finished(first + seconds, arrived.id, 200, prompt, 0, tokens, finish_reason="stop", events=tokens,
                            draft_tokens=accepted, accepted_tokens=accepted))  # fmt: skip


def taught(tells: bool = True) -> Fleet:
    """``tells``: the engine says how much it accepted; else it claims that it was nothing."""
    fleet = Fleet(PolicySettings(cold_requests=2, verdict=RULES))
    advance(fleet, Joined(0.0, "speculative", "speculative", ("m",), drafts_always=False))
    advance(fleet, Joined(0.0, "plain", "plain", ("m",), depth=0))
    for number in range(0, 60, 2):
        serve(fleet, number, "editor", "plain" if number % 10 else "speculative", tells)
        serve(fleet, number + 1, "writer", "speculative" if number % 4 else "plain", tells)
    return fleet


def test_dear_prompt_tokens_are_learnt_from_a_few_requests() -> None:
    fleet = taught()
    for backend in fleet.backends.values():
        assert backend.prefill == pytest.approx(PREFILL, rel=0.3), backend.name


def test_what_is_shown_to_pay_is_sent_there_however_dear_its_steps_look() -> None:
    fleet = taught()
    assert fleet.verdicts.classes["m|editor|text|greedy"].state == PAYS
    arrived = ask(100, "editor", None)
    advance(fleet, arrived)
    verdict = decide(fleet, arrived)
    assert isinstance(verdict, Decision)
    assert verdict.lane == SPECULATIVE, verdict


def test_no_model_of_steps_contradicts_a_gain_that_was_measured() -> None:
    fleet = taught(tells=False)
    gain = fleet.verdicts.classes["m|editor|text|greedy"].gain(2.0).ratio
    assert gain is not None
    drafter, plain = fleet.backends["speculative"], fleet.backends["plain"]
    steps = drafter.speed.step_seconds(fleet.verdicts.crowd) / plain.speed.step_seconds(fleet.verdicts.crowd)
    assert drafter.yields.of("m|editor|text|greedy") >= 0.95 * gain * steps  # steps were learnt on since


def test_a_proof_ends_with_its_verdict() -> None:
    yields = taught().backends["speculative"].yields
    modelled = yields.of("c")
    yields.prove("c", 3.0)
    assert yields.of("c") == 3.0
    yields.prove("c", 0.0)
    assert yields.of("c") == modelled
