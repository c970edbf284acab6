"""A whole comparison: look, refuse or warm up, run, probe the memory, judge."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import httpx

from proxy.discovery import BackendUnreachableError, discover
from proxy.engines.base import Discovered
from proxy.proof.after import memory_findings, run_findings
from proxy.proof.arm import PLAIN, SPECULATIVE, Arm, Client, Place, Sample
from proxy.proof.before import arm_findings, body_findings, greedy_findings, prompt_findings, settings_findings
from proxy.proof.compare import Cell, Saving, compare, savings
from proxy.proof.course import Course, Load, plan, run
from proxy.proof.diversity import Diversity
from proxy.proof.findings import WITHHELD, Finding, pardoned
from proxy.proof.prompts import Prompt, freshened, shares

GREEDY: dict[str, object] = {"temperature": 0, "max_tokens": 32}
MEMORY_ROUND: dict[str, object] = {"temperature": 0, "max_tokens": 64}
MEMORY_PROMPTS = 3


@dataclass(frozen=True)
class Plan:
    """What is to be compared on what."""

    plain: Arm
    speculative: Arm
    prompts: tuple[Prompt, ...]
    warm_ups: tuple[Prompt, ...]
    """Sent first and not measured; the last three are kept for the memory probe."""
    loads: tuple[Load, ...] = (Load(concurrency=1),)
    allow_repeats: bool = False
    anyway: bool = False
    """Run although a finding withholds the verdict."""
    seed: int = 1


@dataclass
class Outcome:
    """What came out, as far as it got."""

    plan: Plan
    diversity: Diversity
    found: dict[str, Discovered] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    course: Course = field(default_factory=Course)
    cells: list[Cell] = field(default_factory=list)
    savings: list[Saving] = field(default_factory=list)
    refused: bool = False
    """Nothing was measured, because of ``findings``."""

    @property
    def withheld(self) -> bool:
        """No verdict can be trusted."""
        return any(finding.severity == WITHHELD for finding in self.findings)

    def add(self, findings: Sequence[Finding]) -> None:
        """Take findings in, each name once, pardoned where the plan allows repeats."""
        known = {finding.name for finding in self.findings}
        fresh = {finding.name: finding for finding in reversed(findings) if finding.name not in known}
        self.findings += [pardoned(finding, self.plan.allow_repeats) for finding in reversed(fresh.values())]


Listener = Callable[[Sample], None]


async def look(arm: Arm) -> tuple[Arm, Discovered]:
    """Ask an arm what it is and complete engine and model. Raises BackendUnreachableError."""
    async with httpx.AsyncClient() as http:
        found = await discover(http, arm.url, arm.headers)
    if not arm.model and not found.models:
        raise BackendUnreachableError(arm.url, "it lists no model; name one")
    return replace(arm, engine=found.engine, model=arm.model or found.models[0]), found


async def hold(plan_: Plan, told: Listener) -> Outcome:
    """Run the comparison. Cancelled while measuring, it judges what it has. Raises BackendUnreachableError."""
    diversity, findings = prompt_findings(plan_.prompts)
    outcome = Outcome(plan_, diversity)
    outcome.add([*findings, *body_findings(plan_.plain.body)])
    (plain, plain_found), (speculative, speculative_found) = await asyncio.gather(
        look(plan_.plain), look(plan_.speculative)
    )
    outcome.found = {PLAIN: plain_found, SPECULATIVE: speculative_found}
    outcome.add(arm_findings(plain_found, speculative_found))
    async with httpx.AsyncClient() as http:
        outcome.add(await settings_findings(http, plain, speculative))
    outcome.refused = outcome.withheld and not plan_.anyway
    if not outcome.refused:
        async with Client(plain) as one, Client(speculative) as other:
            await _measure(outcome, one, other, told)
        judge(outcome)
    return outcome


async def _measure(outcome: Outcome, plain: Client, speculative: Client, told: Listener) -> None:
    plan_ = outcome.plan
    warm, kept = plan_.warm_ups[:-MEMORY_PROMPTS], plan_.warm_ups[-MEMORY_PROMPTS:]
    outcome.add(await _warm_up(plain, speculative, warm))
    outcome.refused = outcome.withheld and not plan_.anyway
    if outcome.refused:
        return
    shares_of_prompts = zip(plan_.loads, shares(plan_.prompts, len(plan_.loads)), strict=True)
    bursts = plan(dict(shares_of_prompts), arms=2)
    try:
        await run(outcome.course, bursts, (plain, speculative), told, plan_.seed)
    except asyncio.CancelledError:
        # Ctrl-C: what was measured is worth a report; a second one ends the program.
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        return
    outcome.add(await _probe_memory(speculative, freshened(kept, random.SystemRandom())))


async def _warm_up(plain: Client, speculative: Client, prompts: Sequence[Prompt]) -> list[Finding]:
    """Half of the prompts as they will be asked, half at temperature 0 to see whether both arms answer alike."""
    half = len(prompts) // 2
    place = Place("warm-up", -1, -1)
    for prompt in prompts[:half]:
        for client in (plain, speculative):
            await client.ask(prompt, place)
    greedy = [
        [await client.ask(prompt, place, **GREEDY) for prompt in prompts[half:]] for client in (plain, speculative)
    ]
    return greedy_findings(*greedy)


async def _probe_memory(speculative: Client, prompts: Sequence[Prompt]) -> list[Finding]:
    place = Place("memory", -1, -1)
    first, again = [
        [await speculative.ask(prompt, place, **MEMORY_ROUND) for prompt in prompts] for _ in ("first", "again")
    ]
    return memory_findings(first, again)


def judge(outcome: Outcome) -> None:
    """Findings of the run, cells and savings, from what the course holds."""
    if not outcome.course.samples:
        return
    outcome.add(run_findings(outcome.course, outcome.found[PLAIN], outcome.found[SPECULATIVE]))
    outcome.cells = compare(outcome.course, PLAIN, SPECULATIVE, outcome.plan.seed)
    outcome.savings = savings(outcome.course, outcome.cells, PLAIN, SPECULATIVE, outcome.plan.seed)
