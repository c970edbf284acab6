"""Several settings of a drafter compared: which are worth running, and how they run."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from proxy.engines.base import Discovered
from proxy.proof.advice import Advice, advise
from proxy.proof.after import arm_findings_of
from proxy.proof.arm import PLAIN, Arm, Client, Place, Sample
from proxy.proof.before import body_findings, prompt_findings
from proxy.proof.course import Course, Load, plan, run
from proxy.proof.depth import DEFAULT_COST, WORTH, Prediction, Seen, next_depth, predict, worth_running
from proxy.proof.diversity import Diversity
from proxy.proof.figures import Figures, figures_of
from proxy.proof.findings import WITHHELD, Finding, pardoned
from proxy.proof.launch import filled, free_port, started
from proxy.proof.prompts import Prompt, shares
from proxy.proof.session import look

PILOT_SHARE = 0.25
"""Part of the prompts that the deepest running arm (and the plain one) answers first, to predict the others from."""
PILOT_WORTH = 0.10
"""Wider than WORTH: a pilot is short and the cost of a draft token may still be assumed."""
PILOT_DOUBT = 0.25
"""Added to it over the square root of the pilot's prompts: relative spread of the time per token from prompt to prompt. On a
real engine three prompts put the depth that was best by 5 % behind by 12 %, and it was left out."""


@dataclass(frozen=True)
class Candidate:
    """One setting: an engine that runs (``url``) or how to start it (``command`` with ``{port}``)."""

    label: str
    url: str = ""
    command: str = ""
    depth: int | None = None
    """Draft tokens per step; 0 for a plain engine, None where the label is no number."""


@dataclass(frozen=True)
class SweepPlan:
    """What is to be swept."""

    candidates: tuple[Candidate, ...]
    plain: Candidate | None
    prompts: tuple[Prompt, ...]
    warm_ups: tuple[Prompt, ...]
    template: Arm
    """How every arm is asked; name and URL are filled in."""
    loads: tuple[Load, ...] = (Load(concurrency=1),)
    everything: bool = False
    """Run all candidates, whatever is predicted."""
    cost: float = DEFAULT_COST
    allow_repeats: bool = False
    patience_seconds: float = 300.0
    seed: int = 1

    @property
    def numbered(self) -> bool:
        """All candidates are depths, so that one can be predicted from another."""
        return all(candidate.depth is not None for candidate in self.candidates)

    @property
    def deepest(self) -> Candidate:
        """The one whose positions tell most about the others."""
        return max(self.candidates, key=lambda candidate: candidate.depth or 0)


@dataclass
class Sweep:
    """What came out, as far as it got."""

    plan: SweepPlan
    diversity: Diversity
    findings: list[Finding] = field(default_factory=list)
    found: dict[str, Discovered] = field(default_factory=dict)
    course: Course = field(default_factory=Course)
    pilot: Course = field(default_factory=Course)
    predictions: list[Prediction] = field(default_factory=list)
    """The last ones made before the choice of arms was closed; all kinds, first load."""
    skipped: list[str] = field(default_factory=list)
    """Labels that were not run, since their prediction was not worth it."""
    advice: list[Advice] = field(default_factory=list)

    @property
    def withheld(self) -> bool:
        """No recommendation can be trusted."""
        return any(finding.severity == WITHHELD for finding in self.findings)


Listener = Callable[[Sample], None]


async def sweep(plan_: SweepPlan, told: Listener) -> Sweep:
    """Run it. Cancelled while measuring, it advises from what it has.

    Raises BackendUnreachableError, and EngineFailedError when a started engine does not serve.
    """
    diversity, findings = prompt_findings(plan_.prompts)
    outcome = Sweep(plan_, diversity)
    findings += body_findings(plan_.template.body)
    outcome.findings = [pardoned(finding, plan_.allow_repeats) for finding in findings]
    if outcome.withheld:
        return outcome
    running = all(candidate.url for candidate in plan_.candidates)
    try:
        await (_running if running else _one_by_one)(outcome, told)
    except asyncio.CancelledError:
        if not outcome.course.samples:
            raise
        outcome.course.interrupted = True
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    _conclude(outcome)
    return outcome


def _conclude(outcome: Sweep) -> None:
    arms = list(dict.fromkeys(sample.arm for sample in outcome.course.samples))
    if not arms:
        return
    known = {finding.name for finding in outcome.findings}
    fresh = [finding for finding in arm_findings_of(outcome.course, arms) if finding.name not in known]
    outcome.findings += [pardoned(finding, outcome.plan.allow_repeats) for finding in fresh]
    depths = {candidate.label: candidate.depth for candidate in outcome.plan.candidates}
    outcome.advice = advise(outcome.course, arms, depths, PLAIN if PLAIN in arms else None, outcome.plan.seed)


@asynccontextmanager
async def opened(outcome: Sweep, candidate: Candidate) -> AsyncIterator[Client]:
    """A client for a candidate: its engine started where it has to be, looked at, and warmed up."""
    plan_ = outcome.plan
    async with AsyncExitStack() as stack:
        url = candidate.url
        if not url:
            port = free_port()
            command = filled(candidate.command, {"port": str(port)})
            url = await stack.enter_async_context(started(command, port, plan_.patience_seconds))
        arm, found = await look(replace(plan_.template, name=candidate.label, url=url))
        outcome.found[candidate.label] = found
        client = await stack.enter_async_context(Client(arm))
        for prompt in plan_.warm_ups:
            await client.ask(prompt, Place("warm-up", -1, -1))
        yield client


async def _running(outcome: Sweep, told: Listener) -> None:
    """Engines that all run: a pilot on few of them, then those worth it, alternating prompt by prompt."""
    plan_ = outcome.plan
    pilot, rest = _pilot_prompts(plan_)
    chosen = list(plan_.candidates)
    if pilot:
        await _alternate(outcome, outcome.pilot, _with_plain(plan_, [plan_.deepest]), {plan_.loads[0]: pilot}, told)
        wanted = set(_worth_after_pilot(outcome))
        chosen = [candidate for candidate in chosen if candidate.depth in wanted]
        outcome.skipped = [c.label for c in plan_.candidates if c not in chosen]
    by_load = dict(zip(plan_.loads, shares(rest, len(plan_.loads)), strict=True))
    await _alternate(outcome, outcome.course, _with_plain(plan_, chosen), by_load, told)


def _pilot_prompts(plan_: SweepPlan) -> tuple[list[Prompt], list[Prompt]]:
    if plan_.everything or not plan_.numbered or len(plan_.candidates) < 2:
        return [], list(plan_.prompts)
    count = max(1, round(len(plan_.prompts) * PILOT_SHARE))
    return list(plan_.prompts[:count]), list(plan_.prompts[count:])


def _with_plain(plan_: SweepPlan, candidates: Sequence[Candidate]) -> list[Candidate]:
    return [*([plan_.plain] if plan_.plain else []), *candidates]


async def _alternate(
    outcome: Sweep,
    course: Course,
    candidates: Sequence[Candidate],
    prompts_by_load: Mapping[Load, Sequence[Prompt]],
    told: Listener,
) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(opened(outcome, candidate)) for candidate in candidates]
        await run(course, plan(prompts_by_load, len(clients)), clients, told, outcome.plan.seed)


def pilot_worth(prompts: int) -> float:
    """How much worse than the best a depth may be predicted, relatively, and still be run, after a pilot of so many prompts."""
    return PILOT_WORTH + PILOT_DOUBT / math.sqrt(max(1, prompts))


def _worth_after_pilot(outcome: Sweep) -> list[int]:
    """Depths worth running for all kinds together or for any kind with enough requests."""
    plan_ = outcome.plan
    depths = sorted(candidate.depth for candidate in plan_.candidates if candidate.depth is not None)
    wanted: set[int] = set()
    for kind in (None, *sorted({sample.kind for sample in outcome.pilot.samples})):
        seen = seen_depths(outcome, outcome.pilot, kind)
        prompts = len({sample.prompt for sample in outcome.pilot.samples if kind in (None, sample.kind)})
        if not any(one.per_position for one in seen):
            continue
        predictions = predict(seen, depths, plan_.cost)
        outcome.predictions = outcome.predictions or predictions
        wanted.update(worth_running(predictions, pilot_worth(prompts)))
    return sorted(wanted) or depths


def seen_depths(outcome: Sweep, course: Course, kind: str | None) -> list[Seen]:
    """What a course showed of each depth; depths without a time per token are left out."""
    depths = {candidate.label: candidate.depth for candidate in outcome.plan.candidates} | {PLAIN: 0}
    seen = []
    for arm in dict.fromkeys(sample.arm for sample in course.samples):
        samples = [s for s in course.samples if s.arm == arm and kind in (None, s.kind)]
        figures = figures_of(course, samples, arm, kind, outcome.plan.seed)
        seconds, depth = seconds_per_token(samples), depths.get(arm)
        if seconds is not None and depth is not None:
            per_position = figures.per_position if depth else ()
            seen.append(Seen(depth, seconds, per_position, _covered(figures)))
    return seen


def seconds_per_token(samples: Sequence[Sample]) -> float | None:
    """Geometric mean over requests of the time per token after the first."""
    logs = [math.log(sample.tpot_seconds) for sample in samples if sample.ok and sample.tpot_seconds]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _covered(figures: Figures) -> float:
    """Share of the output that came from steps with a draft: each gives its accepted tokens and one more."""
    if not figures.completion_tokens or figures.acceptance_length is None or figures.drafts is None:
        return 1.0
    return min(1.0, figures.drafts * figures.acceptance_length / figures.completion_tokens)


async def _one_by_one(outcome: Sweep, told: Listener) -> None:
    """Engines that have to be started: one after the other, then back again, so that slow drift cancels out."""
    plan_ = outcome.plan
    half = (len(plan_.prompts) + 1) // 2
    passes = [plan_.prompts[:half], plan_.prompts[half:]]
    order = await _forth(outcome, passes[0], told)
    for candidate in reversed(order):
        await _alone(outcome, candidate, passes[1], len(plan_.prompts), told)


async def _forth(outcome: Sweep, prompts: Sequence[Prompt], told: Listener) -> list[Candidate]:
    """The first pass, which decides from what it sees which candidate is worth starting next."""
    plan_ = outcome.plan
    predicting = plan_.numbered and not plan_.everything
    done = _with_plain(plan_, [plan_.deepest] if predicting else plan_.candidates)
    for candidate in done:
        await _alone(outcome, candidate, prompts, 0, told)
    waiting = [candidate for candidate in plan_.candidates if candidate not in done]
    while waiting:
        depth = _next(outcome, waiting)
        if depth is None:
            break
        chosen = next(candidate for candidate in waiting if candidate.depth == depth)
        waiting.remove(chosen)
        await _alone(outcome, chosen, prompts, 0, told)
        done.append(chosen)
    outcome.skipped = [candidate.label for candidate in waiting]
    return done


def _next(outcome: Sweep, waiting: Sequence[Candidate]) -> int | None:
    """The next depth for all kinds together, else for the first kind that has one."""
    depths = [candidate.depth for candidate in waiting if candidate.depth is not None]
    for kind in (None, *sorted({sample.kind for sample in outcome.course.samples})):
        seen = seen_depths(outcome, outcome.course, kind)
        if not any(one.per_position for one in seen):
            continue
        predictions = predict(seen, depths, outcome.plan.cost)
        if kind is None:
            outcome.predictions = [*(p for p in outcome.predictions if p.depth not in depths), *predictions]
        # The fitted times of what was measured: the best raw one is best by luck, and would shut out the others.
        ran = predict(seen, [one.depth for one in seen if one.depth], outcome.plan.cost)
        measured = {prediction.depth: prediction.seconds_per_token for prediction in ran}
        if (depth := next_depth(predictions, measured, WORTH)) is not None:
            return depth
    return None


async def _alone(
    outcome: Sweep, candidate: Candidate, prompts: Sequence[Prompt], first_block: int, told: Listener
) -> None:
    if not prompts:
        return
    plan_ = outcome.plan
    by_load = dict(zip(plan_.loads, shares(prompts, len(plan_.loads)), strict=True))
    async with opened(outcome, candidate) as client:
        await run(outcome.course, plan(by_load, 1, first_block), [client], told, plan_.seed)
