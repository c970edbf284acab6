"""What is recommended, from requests with known times."""

import random

from proxy.proof.advice import Advice, advise
from proxy.proof.arm import PLAIN, Place, Sample
from proxy.proof.compare import DOES_NOT_PAY, NOT_ENOUGH, PAYS
from proxy.proof.course import Course

DEPTHS = {"2": 2, "4": 4, "8": 8}


def course(per_token: dict[str, float], prompts: int = 60, noise: float = 0.05) -> Course:
    """Every arm answers every prompt; times per token are those given, give or take the noise."""
    rng, made = random.Random(3), Course()
    for number in range(prompts):
        for arm, seconds in per_token.items():
            tpot = seconds * (1 + rng.uniform(-noise, noise))
            made.samples.append(
                Sample(
                    arm,
                    f"p{number}",
                    "chat",
                    Place("1 at once", len(made.samples), number),
                    0.0,
                    latency_seconds=0.1 + 99 * tpot,
                    ttft_seconds=0.1,
                    tpot_seconds=tpot,
                    completion_tokens=100,
                )
            )
    return made


def advice(per_token: dict[str, float], plain: str | None = PLAIN, **more: float) -> Advice:
    (found,) = advise(course(per_token, **more), list(per_token), DEPTHS, plain)  # type: ignore[arg-type]  # prompts or noise
    return found


def test_the_fastest_depth_is_taken() -> None:
    found = advice({PLAIN: 0.02, "2": 0.015, "4": 0.012, "8": 0.016})
    assert (found.take, found.best, found.verdict, found.tied) == ("4", "4", PAYS, ("4",))


def test_of_depths_that_cannot_be_told_apart_the_shallowest_is_taken() -> None:
    found = advice({PLAIN: 0.02, "2": 0.015, "4": 0.0121, "8": 0.012}, noise=0.3)
    assert found.take == "4"
    assert set(found.tied) == {"4", "8"}
    assert "8 cannot be told from it" in found.sentence


def test_where_every_depth_is_slower_speculation_is_advised_against() -> None:
    found = advice({PLAIN: 0.02, "2": 0.022, "4": 0.025})
    assert (found.take, found.verdict) == (PLAIN, DOES_NOT_PAY)
    assert found.sentence.startswith("Do not speculate")


def test_where_nothing_can_be_told_nothing_is_claimed() -> None:
    found = advice({PLAIN: 0.02, "2": 0.02, "4": 0.02}, noise=0.3)
    assert found.verdict == NOT_ENOUGH
    assert found.sentence.startswith("No setting is shown to be faster than plain")


def test_without_a_plain_arm_a_depth_is_taken_and_no_verdict_given() -> None:
    found = advice({"8": 0.02, "4": 0.015}, plain=None)
    assert (found.take, found.verdict, found.reference) == ("4", NOT_ENOUGH, "8")


def test_a_handful_of_prompts_is_no_ground_for_advice() -> None:
    assert advise(course({PLAIN: 0.02, "2": 0.01}, prompts=7), [PLAIN, "2"], DEPTHS, PLAIN) == []
