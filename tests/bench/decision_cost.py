"""What a decision costs: advance(Arrived) + decide + advance(Dispatched), 16 backends, 1,000 applications.

``make bench BENCH=decision_cost`` prints p50 and p99 in microseconds and the share of each call: from source, and compiled
as the image has it where there is a C compiler.
"""

import subprocess
import sys
from statistics import median, quantiles
from time import perf_counter_ns

from policies.decide import decide
from policies.decision import Decision
from policies.events import Arrived, Dispatched, Finished, FirstToken, Joined
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings
from proxy.version import compiled as runs_compiled
from tests.bench.compiled import ROOT, compiled, importing
from tests.bench.overhead_loads import compiler


def warmed(backends: int, applications: int, settings: PolicySettings) -> Fleet:
    """A fleet that has learnt something of every backend and application."""
    fleet = Fleet(settings)
    for number in range(backends):
        lane = "speculative" if number % 2 else "plain"
        advance(fleet, Joined(0.0, f"b{number}", lane, ("m",), depth=3 if number % 2 else 0))
    for number in range(max(20 * backends, 6 * applications)):
        one_request(fleet, number, applications, finish=True)
    return fleet


def arrival(number: int, applications: int) -> Arrived:
    """A request of one of the applications, with three known message borders."""
    app = number % applications
    return Arrived(
        at=number * 0.01, id=f"r{number}", model="m", app=f"app{app}", surface="chat", prompt_bytes=2_000 + app,
        stream=True, cap=1_000, features=("tools",), system=app + 1, fingerprint=number + 1,
        prefixes=((app + 1, 500), (app + 5_000, 1_500), (number + 90_000, 2_000)), draw=0.5,
    )  # fmt: skip


def one_request(fleet: Fleet, number: int, applications: int, finish: bool) -> list[int]:
    """One request through the fleet; nanoseconds spent in the three calls on its way out."""
    arrived = arrival(number, applications)
    a = perf_counter_ns()
    advance(fleet, arrived)
    b = perf_counter_ns()
    verdict = decide(fleet, arrived)
    assert isinstance(verdict, Decision)
    c = perf_counter_ns()
    advance(fleet, Dispatched(arrived.at, arrived.id, verdict.backend))
    d = perf_counter_ns()
    if finish:
        advance(fleet, FirstToken(arrived.at + 0.1, arrived.id))
        tokens = 100 + 10 * (number % 10)
        advance(fleet, Finished(arrived.at + 2.0, arrived.id, 200, 500, 100, tokens, finish_reason="stop",
                                events=tokens // 2, steps=tokens // 2, draft_tokens=3 * tokens // 2,
                                accepted_tokens=tokens // 2 if verdict.lane == "speculative" else None))  # fmt: skip
    return [b - a, c - b, d - c]


def quietest(costs: list[list[int]]) -> list[list[int]]:
    """The block of 1,000 with the lowest median: other processes only ever add."""
    blocks = [costs[start : start + 1_000] for start in range(0, len(costs), 1_000)]
    return min(blocks, key=lambda block: median(map(sum, block)))


def main() -> None:
    """Measure both forms, each in a process of its own."""
    forms = [ROOT, compiled()] if compiler() is not None else [ROOT]
    for form in forms:
        subprocess.run([sys.executable, __file__, "here"], env=importing(form), check=True)


def measure() -> None:
    """Print the table of the form that is imported here."""
    sys.stdout.write("compiled\n" if runs_compiled() else "from source\n")
    for backends in (1, 2, 16):
        fleet = warmed(backends, 1_000, PolicySettings())
        block = quietest([one_request(fleet, 1_000_000 + number, 1_000, finish=True) for number in range(20_000)])
        total = quantiles([sum(cost) / 1000 for cost in block], n=100)
        arrived, decided, sent = (median(cost[part] / 1000 for cost in block) for part in range(3))
        sys.stdout.write(
            f"{backends:5d} backends: p50 {total[49]:.1f} µs, p99 {total[98]:.1f} µs"
            f" (arrived {arrived:.1f}, decide {decided:.1f}, dispatched {sent:.1f})\n"
        )


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["here"] else main()
