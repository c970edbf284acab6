"""A discrete-event run of modelled servers under a trace, judged by the very code that runs in production.

A router sees what a gateway sees (arrivals in bytes, first tokens, ends with usage, silence) and answers
with a backend. The loop owns time: arrivals, step borders of the servers, pulses, and changes in mid-run
(a server slows down or hangs). Requests without a first token on a backend the router calls stalled are
taken back and asked again, as the gateway does. Clients never give up, so a lane that collapses shows as
latency. Same jobs, engines, changes and router: same outcome, bit for bit.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Protocol

from policies.events import Arrived, Dispatched, Event, Failed, Finished, FirstToken, Pulse
from policies.simulation_server import Engine, Flight, Server
from policies.simulation_workload import Job


class Router(Protocol):
    """What a run asks of a policy."""

    def route(self, arrived: Arrived, job: Job) -> str:
        """The backend that shall serve the request. Only references that know may read ``job`` beyond its id."""

    def observe(self, event: Event) -> None:
        """Take note of anything but an arrival."""

    def stalled(self) -> Sequence[str]:
        """Backends whose requests without a first token are to be asked again elsewhere."""


class Change(NamedTuple):
    """Something happens to a server in mid-run."""

    at: float
    backend: str
    what: str
    """``slow``: from now on steps take ``value`` times as long. ``hang``: silent for ``value`` seconds."""
    value: float


class Served(NamedTuple):
    """What became of one request."""

    job: Job
    backend: str
    first_at: float
    ended_at: float
    steps: int
    moves: int
    """Times it was taken from a stalled backend."""

    @property
    def latency(self) -> float:
        """Seconds from arrival to the last token."""
        return self.ended_at - self.job.at

    @property
    def seconds_per_token(self) -> float | None:
        """Seconds per output token after the first; None for answers of one token."""
        tokens = self.job.output_tokens - 1
        return (self.ended_at - self.first_at) / tokens if tokens > 0 else None


def simulate(
    jobs: Sequence[Job],
    engines: Sequence[Engine],
    router: Router,
    changes: Sequence[Change] = (),
    pulse_seconds: float = 0.25,
    progress: Callable[[int], None] | None = None,
) -> list[Served]:
    """Serve ``jobs`` (sorted by ``at``) and return what became of each, in the order of their ends.

    ``progress`` hears the number of finished requests every 500.
    """
    return _Run(jobs, engines, router, pulse_seconds).to_the_end(changes, progress)


class _Run:
    """The loop's state: servers, the agenda, and who has no first token yet."""

    def __init__(self, jobs: Sequence[Job], engines: Sequence[Engine], router: Router, pulse_seconds: float) -> None:
        self.jobs = jobs
        self.router = router
        self.pulse_seconds = pulse_seconds
        self.servers = {engine.name: Server(engine) for engine in engines}
        self.silent: dict[str, dict[str, Flight]] = {name: {} for name in self.servers}
        self.moves: dict[str, int] = {}
        self.agenda: list[tuple[float, int, str, int]] = []
        self.order = 0
        self.served: list[Served] = []

    def to_the_end(self, changes: Sequence[Change], progress: Callable[[int], None] | None) -> list[Served]:
        pending = sorted(changes)
        upcoming = iter(self.jobs)
        job = next(upcoming, None)
        pulse_at = inf if job is None else job.at + self.pulse_seconds
        while len(self.served) < len(self.jobs):
            border = self.agenda[0][0] if self.agenda else inf
            arrival = job.at if job is not None else inf
            change = pending[0].at if pending else inf
            now = min(border, arrival, change, pulse_at)
            if now == border:
                self._border()
                if progress is not None and len(self.served) % 500 == 0:
                    progress(len(self.served))
            elif now == change:
                self._apply(pending.pop(0))
            elif job is not None and now == arrival:
                self._ask(job, now, ())
                job = next(upcoming, None)
            else:
                busy = self._pulse(now)
                pulse_at = (now if busy else max(now, arrival)) + self.pulse_seconds
        return self.served

    def _ask(self, job: Job, now: float, excluded: tuple[str, ...]) -> None:
        arrived = arrival_of(job, now, excluded)
        name = self.router.route(arrived, job)
        server = self.servers[name]
        flight = Flight(job, server.engine.drafter)
        self.silent[name][job.id] = flight
        self.router.observe(Dispatched(now, job.id, name))
        server.submit(flight, now)
        self._note(server)

    def _note(self, server: Server) -> None:
        if server.due < inf:
            self.order += 1
            heappush(self.agenda, (server.due, self.order, server.engine.name, server.stamp))

    def _border(self) -> None:
        at, _, name, stamp = heappop(self.agenda)
        server = self.servers[name]
        if stamp != server.stamp:
            return
        started, ended = server.border()
        for flight in started:
            self.silent[name].pop(flight.job.id, None)
            self.router.observe(FirstToken(at, flight.job.id))
        for flight in ended:
            self.router.observe(_end_of(flight, server.engine, at))
            moves = self.moves.get(flight.job.id, 0)
            self.served.append(Served(flight.job, name, flight.first_at, at, flight.steps, moves))
        self._note(server)

    def _apply(self, change: Change) -> None:
        server = self.servers[change.backend]
        if change.what == "slow":
            server.slow(change.at, change.value)
        else:
            server.hang(change.at, change.value)
        self._note(server)

    def _pulse(self, now: float) -> bool:
        busy = [server for server in self.servers.values() if server.due < inf]
        for server in busy:
            heard_at, gap = server.heard(now)
            self.router.observe(Pulse(now, server.engine.name, heard_at, gap))
        for name in self.router.stalled():
            for flight in list(self.silent[name].values()):
                self._move(flight, name, now)
        return bool(busy)

    def _move(self, flight: Flight, name: str, now: float) -> None:
        self.servers[name].withdraw(flight)
        del self.silent[name][flight.job.id]
        self.moves[flight.job.id] = self.moves.get(flight.job.id, 0) + 1
        self.router.observe(Failed(now, flight.job.id, name, "stalled", None, final=False))
        self._ask(flight.job, now, (name,))


def arrival_of(job: Job, now: float, excluded: tuple[str, ...] = ()) -> Arrived:
    """What the gateway would see of a request: bytes, not tokens, and no word about the output."""
    return Arrived(
        at=now,
        id=job.id,
        model="model",
        app=job.app,
        surface="chat",
        prompt_bytes=job.prompt_bytes,
        stream=True,
        draw=job.draw,
        choice=job.choice,
        excluded=excluded,
    )


def _end_of(flight: Flight, engine: Engine, at: float) -> Finished:
    """Usage and, from a speculative engine, its own account of drafts; one content event per step."""
    job, depth = flight.job, engine.depth
    return Finished(
        at=at,
        id=job.id,
        prompt_tokens=job.input_tokens,
        completion_tokens=job.output_tokens,
        finish_reason="stop",
        events=flight.steps + 1,
        steps=flight.steps if depth else None,
        draft_tokens=flight.drafted if depth else None,
        accepted_tokens=flight.accepted if depth else None,
    )
