"""The production judgement in a simulated run: the same fleet, the same fold, the same decision.

Nothing is given: output lengths, bytes per token, speeds and acceptance are all learnt from the run's own events.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from policies.decide import decide
from policies.decision import Decision, Verdict
from policies.events import Arrived, Event, Joined
from policies.fleet import Fleet, advance
from policies.settings import PolicyName, PolicySettings
from policies.simulation import Change, Router
from policies.simulation_references import REFERENCES, reference
from policies.simulation_server import Engine
from policies.simulation_workload import Job

PRODUCTION: tuple[PolicyName, ...] = get_args(PolicyName)
"""Policies that run in production, by the names of the configuration."""

KNOWING = (*REFERENCES, "clairvoyant")
"""Policies that exist in simulation only."""


class Unserved(RuntimeError):
    """The judgement refused a request although every modelled server can serve it."""


class Gateway:
    """A router that decides as ``draftlane serve`` would."""

    def __init__(self, settings: PolicySettings, engines: Sequence[Engine]) -> None:
        self.fleet = Fleet(settings)
        for engine in engines:
            self.observe(_introduction(engine))

    def route(self, arrived: Arrived, job: Job) -> str:
        """Advance by the arrival, decide. A request that no other backend can take stays where it was."""
        advance(self.fleet, arrived)
        verdict = self.ask(arrived)
        if not isinstance(verdict, Decision) and arrived.excluded:
            verdict = self.ask(arrived._replace(excluded=()))
        if not isinstance(verdict, Decision):
            raise Unserved(f"{job.id}: {verdict}")
        return verdict.backend

    def ask(self, arrived: Arrived) -> Verdict:
        """What would be decided now; changes nothing."""
        return decide(self.fleet, arrived)

    def observe(self, event: Event) -> None:
        """Advance."""
        advance(self.fleet, event)

    def stalled(self) -> Sequence[str]:
        """What the watchdog says, while somebody else is there to take the requests."""
        down = [name for name, backend in self.fleet.backends.items() if backend.stalled]
        return down if len(down) < len(self.fleet.backends) else []


def _introduction(engine: Engine) -> Joined:
    """What discovery would find out about the server."""
    return Joined(
        at=0.0,
        backend=engine.name,
        lane=engine.lane,
        models=("model",),
        engine="vllm",
        depth=engine.depth,
        drafts_always=engine.drafter is None or all(kind.drafted >= 1.0 for kind in engine.drafter.kinds.values()),
    )


def router(
    name: str,
    jobs: Sequence[Job],
    engines: Sequence[Engine],
    changes: Sequence[Change] = (),
    settings: PolicySettings | None = None,
) -> Router:
    """The policy ``name`` for one run: a production policy under ``settings``, or one that knows. Raises KeyError."""
    for known in PRODUCTION:
        if name == known:
            return Gateway(_named(settings or PolicySettings(), known), engines)
    return reference(name, jobs, engines, changes)


def _named(settings: PolicySettings, name: PolicyName) -> PolicySettings:
    return replace(settings, name=name)
