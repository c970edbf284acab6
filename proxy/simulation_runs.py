"""Runs of ``draftlane simulate``: one policy on one fleet, and fleets of equal size against each other."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from policies.simulation import simulate
from policies.simulation_figures import Figures, FleetVerdict, figures, fleet_verdict, regrets
from policies.simulation_gateway import router
from policies.simulation_server import Engine
from policies.simulation_workload import KIND, Drafter, Job, named, uniform
from proxy.presets import Hardware, plain, speculative

Progress = Callable[[str, int], None]
"""Told what is running and how many of its requests are done."""


class Mix(NamedTuple):
    """Servers per lane."""

    plain: int
    speculative: int

    @property
    def total(self) -> int:
        """Servers in all."""
        return self.plain + self.speculative


class Garage(NamedTuple):
    """What servers are built from."""

    base: Hardware
    drafter: Drafter
    draft_share: float

    def fleet(self, mix: Mix) -> tuple[Engine, ...]:
        """Servers named ``plain-1``, ``speculative-1``, …"""
        slow = (plain(f"plain-{n + 1}", self.base) for n in range(mix.plain))
        fast = (
            speculative(f"speculative-{n + 1}", self.base, self.drafter, self.draft_share)
            for n in range(mix.speculative)
        )
        return (*slow, *fast)


class Result(NamedTuple):
    """Policies on one fleet at one rate, and fleets under ``break-even``."""

    rate: float
    """Requests per second in the mean."""
    policies: Mapping[str, Figures]
    regret: Mapping[str, float]
    fleets: Mapping[str, Figures]
    verdict: FleetVerdict


def by_lot(app: str, drafter: Drafter) -> str:
    """A kind of content for an application nobody described: drawn by its name, the same every time."""
    kinds = sorted(drafter.kinds)
    return kinds[int(uniform(0, KIND, named(app)) * len(kinds))]


def compare(jobs: Sequence[Job], garage: Garage, mix: Mix, policies: Sequence[str], progress: Progress) -> Result:
    """Every policy on the fleet ``mix``, then ``break-even`` on the uniform fleets of the same size."""
    engines = garage.fleet(mix)
    done = {name: one_run(name, jobs, engines, progress, name) for name in policies}
    fleets = {}
    for name, other in rivals(mix).items():
        known = done.get("break-even") if other == mix else None
        fleets[name] = known or one_run("break-even", jobs, garage.fleet(other), progress, f"fleet {name}")
    span = jobs[-1].at - jobs[0].at
    return Result(
        rate=(len(jobs) - 1) / span if span > 0 else 0.0,
        policies=done,
        regret=regrets({name: one.latency.mean for name, one in done.items()}),
        fleets=fleets,
        verdict=fleet_verdict({name: one.latency.mean for name, one in fleets.items()}),
    )


def rivals(mix: Mix) -> dict[str, Mix]:
    """Fleets of the same size: one split (the given one, if it is), two uniform. One server cannot be split."""
    total = mix.total
    split = mix if mix.plain and mix.speculative else Mix(total - total // 2, total // 2)
    uniform_fleets = {"all-speculative": Mix(0, total), "all-plain": Mix(total, 0)}
    return {"split": split, **uniform_fleets} if total > 1 else uniform_fleets


def one_run(policy: str, jobs: Sequence[Job], engines: Sequence[Engine], progress: Progress, title: str) -> Figures:
    """Figures of one policy on one fleet."""
    fast = frozenset(engine.name for engine in engines if engine.depth)
    served = simulate(jobs, engines, router(policy, jobs, engines), progress=lambda count: progress(title, count))
    return figures(served, fast)
