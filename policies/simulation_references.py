"""Reference policies for simulated runs: baselines anyone might try, and policies that know what no gateway can.

``Knowing`` policies are told every parameter of every server (F, κ, η, δ, k), the acceptance of each kind of
content, and the median output of each (application, half-octave of input) over the whole trace; servers that
slow down or hang are known the moment they do. They do not know the future: neither a request's own output nor
its own luck. ``clairvoyant`` is told the true output as well; it shows what better length prediction could bring.

The production policies must come within a per cent or so of the best of these, knowing nothing at first.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, log2
from typing import NamedTuple

from policies.events import Arrived, Cancelled, Dispatched, Event, Failed, Finished, FirstToken
from policies.simulation import Change, Router
from policies.simulation_server import Engine
from policies.simulation_workload import Job


class Crowd:
    """What is on one server, counted by the gateway itself."""

    __slots__ = ("cached", "engine", "in_flight", "prefill", "verify")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.in_flight = 0
        self.prefill = 0
        self.cached = 0.0
        self.verify = 0.0


class Outlook(NamedTuple):
    """What a policy may look at to choose: the request, what it will likely emit, the servers and the hour."""

    job: Job
    output: float
    crowds: Sequence[Crowd]
    now: float
    turn: int
    """Requests seen so far."""


Size = tuple[str, int]
Chooser = Callable[[Outlook], Crowd]


class Reference:
    """A router that keeps exact counts per server and lets a plain function choose."""

    def __init__(
        self,
        choose: Chooser,
        engines: Sequence[Engine],
        outputs: Mapping[Size, float],
        changes: Sequence[Change] = (),
        clairvoyant: bool = False,
    ) -> None:
        self.choose = choose
        self.crowds = {engine.name: Crowd(engine) for engine in engines}
        self.outputs = outputs
        self.changes = sorted(changes)
        self.clairvoyant = clairvoyant
        self.live: dict[str, tuple[Crowd, Job, bool]] = {}
        self.hung: dict[str, float] = {}
        self.arrivals = 0
        self.now = 0.0

    def route(self, arrived: Arrived, job: Job) -> str:
        """Choose among the servers that are not hung."""
        self._keep_time(arrived.at)
        up = [c for name, c in self.crowds.items() if self.hung.get(name, 0.0) <= self.now]
        output = job.output_tokens if self.clairvoyant else self.outputs[size_class(job)]
        crowd = self.choose(Outlook(job, output, up or list(self.crowds.values()), self.now, self.arrivals))
        self.arrivals += 1
        self.live[job.id] = (crowd, job, True)
        return crowd.engine.name

    def observe(self, event: Event) -> None:
        """Count."""
        self._keep_time(event.at)
        match event:
            case Dispatched():
                crowd, job, _ = self.live[event.id]
                crowd.in_flight += 1
                crowd.prefill += job.input_tokens
                crowd.cached += job.input_tokens
                crowd.verify += _verify(crowd.engine, job)
            case FirstToken():
                crowd, job, _ = self.live[event.id]
                self.live[event.id] = (crowd, job, False)
                crowd.prefill -= job.input_tokens
            case Finished() | Failed() | Cancelled():
                crowd, job, waiting = self.live.pop(event.id)
                crowd.in_flight -= 1
                crowd.cached -= job.input_tokens
                crowd.verify -= _verify(crowd.engine, job)
                crowd.prefill -= job.input_tokens if waiting else 0
            case _:
                pass

    def stalled(self) -> Sequence[str]:
        """Hung servers, known at once; only while there is somewhere else to go."""
        down = [name for name, until in self.hung.items() if until > self.now]
        return down if len(down) < len(self.crowds) else []

    def _keep_time(self, now: float) -> None:
        self.now = now
        while self.changes and self.changes[0].at <= now:
            change = self.changes.pop(0)
            crowd = self.crowds[change.backend]
            if change.what == "hang":
                self.hung[change.backend] = change.at + change.value
            else:
                crowd.engine = slowed(crowd.engine, change.value)


def slowed(engine: Engine, factor: float) -> Engine:
    """The same server with every step ``factor`` times as long."""
    return engine._replace(
        fixed_seconds=engine.fixed_seconds * factor,
        token_seconds=engine.token_seconds * factor,
        cache_seconds=engine.cache_seconds * factor,
        draft_seconds=engine.draft_seconds * factor,
    )


def _verify(engine: Engine, job: Job) -> float:
    """Expected tokens of one step of this request: itself and its drafts."""
    return 1.0 + engine.depth * engine.drafter.acceptance(job.kind).drafted if engine.drafter else 1.0


ENOUGH = 20
"""Requests a group needs to have a median of its own. Smaller groups would tell a request its own answer's length."""


def size_class(job: Job) -> Size:
    """Application and half-octave of input."""
    return job.app, round(2.0 * log2(job.input_tokens))


def known_outputs(jobs: Sequence[Job]) -> dict[Size, float]:
    """Median output per ``size_class`` over the whole trace: hindsight. Small groups take their application's, or all."""
    groups: dict[Size, list[int]] = {}
    for job in jobs:
        groups.setdefault(size_class(job), []).append(job.output_tokens)
    apps: dict[str, list[int]] = {}
    for (app, _), outputs in groups.items():
        apps.setdefault(app, []).extend(outputs)
    every = [job.output_tokens for job in jobs]
    known = {}
    for key, outputs in groups.items():
        told = next((some for some in (outputs, apps[key[0]]) if len(some) >= ENOUGH), every)
        known[key] = float(sorted(told)[len(told) // 2])
    return known


def cost(weight: float) -> Chooser:
    """The cost rule with known parameters: J = own + w·price, smallest first."""

    def choose(outlook: Outlook) -> Crowd:
        return min(outlook.crowds, key=lambda crowd: _cost(crowd, outlook, weight))

    return choose


def _cost(crowd: Crowd, outlook: Outlook, weight: float) -> float:
    engine, job, n = crowd.engine, outlook.job, crowd.in_flight
    length = engine.drafter.acceptance(job.kind).length if engine.drafter else 1.0
    verify = _verify(engine, job)
    step = (
        engine.fixed_seconds
        + engine.token_seconds * (crowd.verify + verify)
        + engine.cache_seconds * (crowd.cached + job.input_tokens)
        + engine.draft_seconds * engine.depth
    )
    decode = outlook.output / length
    own = engine.token_seconds * (0.5 * crowd.prefill + job.input_tokens) + engine.fixed_seconds + decode * step
    slowdown = engine.token_seconds * verify + engine.cache_seconds * job.input_tokens
    price = n * (engine.token_seconds * job.input_tokens + decode * slowdown)
    return own + weight * price


def fewest(outlook: Outlook) -> Crowd:
    """Join the shortest queue, blind to classes."""
    return min(outlook.crowds, key=lambda crowd: crowd.in_flight)


def round_robin(outlook: Outlook) -> Crowd:
    """In turn."""
    return outlook.crowds[outlook.turn % len(outlook.crowds)]


def lane(speculative: bool) -> Chooser:
    """Everything to one lane, fewest in flight within it; the other lane only when it has no server."""

    def choose(outlook: Outlook) -> Crowd:
        mine = [crowd for crowd in outlook.crowds if (crowd.engine.depth > 0) == speculative]
        return min(mine or outlook.crowds, key=lambda crowd: crowd.in_flight)

    return choose


def ratio(threshold: float, spill: float = inf, slack: int = 4) -> Chooser:
    """Speculative when output / input exceeds ``threshold``; a lane ``spill`` times as full as the other overflows."""

    def choose(outlook: Outlook) -> Crowd:
        wanted = outlook.output / outlook.job.input_tokens > threshold
        mine = lane(wanted)(outlook)
        other = lane(not wanted)(outlook)
        return other if mine.in_flight > spill * other.in_flight + slack else mine

    return choose


REFERENCES: dict[str, Chooser] = {
    "knows-cost": cost(1.0),
    "knows-cost-half": cost(0.5),
    "knows-cost-double": cost(2.0),
    "knows-selfish": cost(0.0),
    "fewest": fewest,
    "turns": round_robin,
    "plain-lane": lane(speculative=False),
    "speculative-lane": lane(speculative=True),
    **{f"ratio-{t}": ratio(t) for t in (0.02, 0.05, 0.1, 0.3, 1.0)},
    **{f"ratio-{t}-spill": ratio(t, 2.0) for t in (0.02, 0.05, 0.1, 0.3, 1.0)},
}
"""Policies that know, by name. ``clairvoyant`` (cost rule, true outputs) is made by ``reference``."""


def reference(name: str, jobs: Sequence[Job], engines: Sequence[Engine], changes: Sequence[Change] = ()) -> Router:
    """The reference policy ``name`` for one run. Raises KeyError for an unknown one."""
    choose = cost(1.0) if name == "clairvoyant" else REFERENCES[name]
    return Reference(choose, engines, known_outputs(jobs), changes, clairvoyant=name == "clairvoyant")
