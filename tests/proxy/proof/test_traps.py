"""Each way to be fooled: the facts that show it, and facts that must not."""

import math
import random
from collections.abc import Callable, Iterable

import pytest

from proxy.engines.base import Discovered, Scrape
from proxy.proof.after import memory_findings, run_findings
from proxy.proof.answer import Acceptance
from proxy.proof.arm import PLAIN, SPECULATIVE, Place, Sample
from proxy.proof.before import (
    arm_findings,
    body_findings,
    configuration_findings,
    greedy_findings,
    prompt_findings,
    sampling_findings,
)
from proxy.proof.course import CLOSING, Course, Turn
from proxy.proof.findings import MARKED, TRAPS, WITHHELD, Finding, found, pardoned
from proxy.proof.prompts import Prompt, built_in

PLAIN_ENGINE = Discovered("vllm", ("m",), speculative=False, max_context_tokens=4096, metrics=True)
SPECULATING = Discovered("vllm", ("m",), speculative=True, depth=4, max_context_tokens=4096, metrics=True)
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("an", "el", "ir", "om", "ush", "aven", "ock")]
Change = Callable[[Sample], Sample]


def samples(count: int = 40, change: Change = lambda sample: sample) -> list[Sample]:
    """A sound run: fresh text, two tokens per step on the speculative arm, answers that end by themselves."""
    rng = random.Random(4)
    made = []
    for number in range(count):
        for place, arm in enumerate((PLAIN, SPECULATIVE)):
            sample = Sample(
                arm,
                f"p{number}",
                "chat",
                Place("1 at once", 2 * number + place, number),
                started_at=0.0,
                latency_seconds=2.1,
                ttft_seconds=0.1,
                tpot_seconds=0.02 * math.exp(rng.gauss(0, 0.1)),
                prompt_tokens=100 + number,
                cached_tokens=4,
                completion_tokens=100,
                acceptance=Acceptance(200, 50, 50, (30.0, 20.0)) if arm == SPECULATIVE else Acceptance(0, 0),
                finish_reason="stop",
                text=" ".join(rng.choices(WORDS, k=60)),
            )
            made.append(change(sample))
    return made


def names(made: Iterable[Sample], plain: Discovered = PLAIN_ENGINE, speculative: Discovered = SPECULATING) -> set[str]:
    return {finding.name for finding in run_findings(course_of(made), plain, speculative)}


def course_of(made: Iterable[Sample]) -> Course:
    held = list(made)
    return Course(planned=len(held), started=len(held), samples=held)


def on(arm: str, **changes: object) -> Change:
    return lambda sample: sample._replace(**changes) if sample.arm == arm else sample  # type: ignore[arg-type]  # any field


def growing(sample: Sample) -> Sample:
    if sample.arm == PLAIN or sample.tpot_seconds is None:
        return sample
    return sample._replace(tpot_seconds=sample.tpot_seconds / (1 + sample.place.block / 20))


def learning(sample: Sample) -> Sample:
    return sample if sample.arm == PLAIN else sample._replace(acceptance=Acceptance(200, sample.place.block * 2))


def fading(sample: Sample) -> Sample:
    if sample.arm == PLAIN or sample.tpot_seconds is None:
        return sample
    return sample._replace(tpot_seconds=sample.tpot_seconds * (1 + sample.place.block / 20))


def drifting(sample: Sample) -> Sample:
    assert sample.tpot_seconds is not None
    return sample._replace(tpot_seconds=sample.tpot_seconds * (1 + sample.place.block / 20))


def failing(share: int) -> Change:
    return lambda sample: (
        sample._replace(error="HTTP 500") if sample.arm == PLAIN and sample.place.block % share == 0 else sample
    )


def odd_lengths(sample: Sample) -> Sample:
    tokens = 150 + sample.place.block if sample.arm == PLAIN else 100
    return sample._replace(completion_tokens=tokens)


RUN_TRAPS: dict[str, Change] = {
    "repeated-outputs": on(PLAIN, text=" ".join(WORDS)),
    "looping-outputs": lambda sample: sample._replace(text=f"{sample.text} " + f"{sample.prompt} and so on " * 60),
    "grows-with-order": growing,
    "shrinks-with-order": fading,
    "machine-drift": drifting,
    "prefix-cache": on(SPECULATIVE, cached_tokens=90),
    "cached-prompts": lambda sample: sample._replace(cached_tokens=90),
    "answers-cut": lambda sample: sample._replace(finish_reason="length"),
    "different-tokenizers": on(PLAIN, prompt_tokens=7),
    "different-lengths": odd_lengths,
    "no-usage": on(SPECULATIVE, completion_tokens=None),
    "failures": failing(2),
    "some-failures": failing(20),
    "plain-speculates": on(PLAIN, acceptance=Acceptance(80, 10)),
    "never-drafted": on(SPECULATIVE, acceptance=Acceptance(0, 0)),
}


def test_a_sound_run_gives_nothing_away() -> None:
    assert names(samples()) == set()


@pytest.mark.parametrize("name", RUN_TRAPS)
def test_a_trap_of_the_run_is_named(name: str) -> None:
    assert names(samples(change=RUN_TRAPS[name])) == {name}


def test_tokens_per_step_that_grow_with_the_run_are_a_trap_too() -> None:
    assert names(samples(change=learning)) == {"grows-with-order"}


def test_an_arm_that_drafts_nothing_and_claims_nothing_does_not_speculate() -> None:
    silent = samples(change=on(SPECULATIVE, acceptance=Acceptance(0, 0)))
    assert names(silent, speculative=SPECULATING._replace(speculative=None)) == {"not-speculating"}


def test_an_engine_that_tells_nothing_is_unknown() -> None:
    silent = samples(change=lambda sample: sample._replace(acceptance=None))
    unknown = SPECULATING._replace(speculative=None)
    assert names(silent, PLAIN_ENGINE, unknown) == {"acceptance-unknown"}


def test_traffic_of_others_shows_in_the_counters() -> None:
    course = course_of(samples(10))
    for block, total in ((0, 0.0), (CLOSING, 1300.0)):
        look = Scrape(generated_tokens=total)
        course.turns.append(Turn(PLAIN, "1 at once", block, 20.0, look, frozenset({"chat"})))
    findings = run_findings(course, PLAIN_ENGINE, SPECULATING)
    assert [(f.name, round(f.figure or 0, 6)) for f in findings] == [("other-traffic", 0.3)]


def test_an_interrupted_run_says_so() -> None:
    course = course_of(samples(10))
    course.interrupted = True
    assert "interrupted" in {f.name for f in run_findings(course, PLAIN_ENGINE, SPECULATING)}


ARM_TRAPS: dict[str, tuple[Discovered, Discovered]] = {
    "not-speculating": (PLAIN_ENGINE, SPECULATING._replace(speculative=False)),
    "plain-speculates": (PLAIN_ENGINE._replace(speculative=True), SPECULATING),
    "different-contexts": (PLAIN_ENGINE, SPECULATING._replace(max_context_tokens=2048)),
    "different-names": (PLAIN_ENGINE, SPECULATING._replace(models=("other",))),
    "different-models": (
        PLAIN_ENGINE._replace(cards=({"id": "m", "meta": {"n_params": 8, "n_vocab": 5}},)),
        SPECULATING._replace(cards=({"id": "m", "meta": {"n_params": 7, "n_vocab": 5}},)),
    ),
}


@pytest.mark.parametrize("name", ARM_TRAPS)
def test_a_trap_of_the_arms_is_named(name: str) -> None:
    assert [finding.name for finding in arm_findings(*ARM_TRAPS[name])] == [name]


def test_twins_give_nothing_away() -> None:
    assert arm_findings(PLAIN_ENGINE, SPECULATING) == []


def props(**params: object) -> object:
    return {"default_generation_settings": {"params": {"temperature": 0.8, "top_k": 40, **params}}}


def test_sampling_defaults_that_requests_do_not_override_must_agree() -> None:
    (finding,) = sampling_findings(props(), props(top_k=1), {"temperature": 0})
    assert finding.name == "different-sampling"
    assert "top_k 40 and 1" in finding.sentence
    assert sampling_findings(props(), props(temperature=0.1), {"temperature": 0}) == []


def info(**config: object) -> object:
    return {"vllm_config": {"model_config": {"model": "a", "tokenizer": "a", "dtype": "bf16", **config}}}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"dtype": "fp16"}, "different-models"),
        ({"tokenizer": "b"}, "different-tokenizers"),
        ({"generation_config": "vllm"}, "different-sampling"),
    ],
)
def test_configurations_must_agree(changed: dict[str, object], name: str) -> None:
    assert [f.name for f in configuration_findings(info(), info(**changed), {})] == [name]
    assert configuration_findings(info(), info(), {}) == []


def test_twins_begin_alike_at_temperature_zero() -> None:
    one = [sample for sample in samples(4) if sample.arm == PLAIN]
    other = [sample._replace(text=f"No. {sample.text}") for sample in one]
    later = [sample._replace(text=f"{sample.text[:30]} but then differs") for sample in one]
    assert [finding.name for finding in greedy_findings(one, other)] == ["different-answers"]
    assert greedy_findings(one, later) == []


def test_forced_lengths_are_marked() -> None:
    assert [finding.name for finding in body_findings({"ignore_eos": True})] == ["ignore-eos"]
    assert body_findings({"ignore_eos": False, "temperature": 0}) == []


def test_an_engine_that_remembers_prompts_is_marked() -> None:
    first = [sample for sample in samples(3) if sample.arm == SPECULATIVE]
    again = [sample._replace(acceptance=Acceptance(200, 75)) for sample in first]
    (finding,) = memory_findings(first, again)
    assert (finding.name, round(finding.figure or 0, 6)) == ("engine-memory", 2.0)
    assert memory_findings(first, first) == []


def test_memory_shows_in_speed_where_acceptance_is_not_told() -> None:
    first = [sample._replace(acceptance=None, tpot_seconds=0.02) for sample in samples(3)]
    assert [f.name for f in memory_findings(first, [s._replace(tpot_seconds=0.01) for s in first])] == ["engine-memory"]


def prompt_traps() -> set[str]:
    texts = [prompt.text for prompt in built_in()]
    sets = (texts[:1] * 9, [text + " padding" * 900 for text in texts[:9]], [*texts[:40], "to and fro " * 90])
    return {f.name for one in sets for f in prompt_findings([Prompt(str(n), "any", t) for n, t in enumerate(one)])[1]}


def test_every_trap_of_the_table_can_be_walked_into() -> None:
    seen = {*RUN_TRAPS, *ARM_TRAPS, *prompt_traps(), "acceptance-unknown", "other-traffic", "interrupted"}
    seen |= {"different-sampling", "different-answers", "ignore-eos", "engine-memory"}
    assert seen == set(TRAPS)


@pytest.mark.parametrize("name", TRAPS)
def test_allowing_repeats_pardons_repeats_only(name: str) -> None:
    finding: Finding = found(name, "Seen.", 1.0)
    severity = MARKED if TRAPS[name].allowed or TRAPS[name].severity == MARKED else WITHHELD
    assert pardoned(finding, allow_repeats=True).severity == severity
    assert pardoned(finding, allow_repeats=False) == finding
    assert finding.sentence.endswith(".")
