"""How far the production policies are from the best policy of each scenario. Simulated; no GPU was used.

    python tests/bench/regret.py TRACE… [--requests 6000] [--seeds 4] [--profile FILE] [--markdown]

Every trace × load × drafter × seed is one run per policy; the best policy of a scenario may be one that knows
every parameter. One line per scenario, then mean and worst per policy. About 0.6 s per policy and 6,000 requests.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from policies.simulation import simulate
from policies.simulation_figures import Figures, figures, regrets
from policies.simulation_gateway import PRODUCTION, router
from policies.simulation_references import REFERENCES
from policies.simulation_server import Engine
from policies.simulation_workload import Asked, Drafter, Job, at_rate, jobs
from proxy import presets, traces
from proxy.hardware import CHIPS, MODELS, WEIGHTS

LOADS = (0.3, 0.6, 0.9)
"""Mean rate as a share of what the fleet serves at batches of 64."""
DRAFTERS = ("eagle-like", "ngram-like")
KINDS = ("chat", "code", "summary", "math")


class Scenario(NamedTuple):
    """One workload on one fleet."""

    trace: str
    drafter: str
    load: float
    seed: int
    jobs: list[Job]
    engines: tuple[Engine, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.trace} {self.drafter} load {self.load:g} seed {self.seed}"


def window(trace: Sequence[Asked], requests: int, seed: int) -> list[Asked]:
    """A stretch of the trace: seed s starts a prime-ish stride further on, so that seeds differ in traffic too."""
    if len(trace) <= requests:
        return list(trace)
    start = seed * 2477 % (len(trace) - requests)
    return list(trace[start : start + requests])


def scenarios(args: argparse.Namespace) -> Iterator[Scenario]:
    """Trace × drafter × load × seed. Tenants get kinds of content by lot; a trace of one tenant, one kind per seed."""
    base = presets.hardware(CHIPS[args.gpu], MODELS[args.model], WEIGHTS["bf16"])
    for path in args.traces:
        trace = traces.read([path])
        alone = len({asked.app for asked in trace}) == 1
        for method in args.drafters:
            drafter: Drafter = presets.drafter(method, args.profile)
            engines = fleet(drafter, base, presets.METHODS[method].draft_share)
            kinds = sorted(drafter.kinds)
            for load in args.loads:
                for seed in range(args.first_seed, args.first_seed + args.seeds):
                    part = window(trace, args.requests, seed)
                    rate = load * len(engines) * presets.capacity(base, part)
                    lot = {} if alone else {kind: kind for kind in kinds}
                    made = jobs(at_rate(part, rate), seed, lot, kinds[seed % len(kinds)] if alone else "")
                    yield Scenario(path.stem, method, load, seed, made, engines)


def fleet(drafter: Drafter, base: presets.Hardware, draft_share: float) -> tuple[Engine, ...]:
    """One server of each lane."""
    return presets.plain("plain", base), presets.speculative("spec", base, drafter, draft_share)


def run(scenario: Scenario, policies: Sequence[str]) -> dict[str, Figures]:
    """Figures of every policy on a scenario."""
    fast = frozenset(engine.name for engine in scenario.engines if engine.depth)
    done = {}
    for name in policies:
        judge = router(name, scenario.jobs, scenario.engines)
        done[name] = figures(simulate(scenario.jobs, scenario.engines, judge), fast)
    return done


class Row(NamedTuple):
    """One policy on one scenario, relative to the best policy there."""

    mean: float
    p99: float
    share: float
    against_least_load: float


def rows(done: dict[str, Figures]) -> dict[str, Row]:
    """Regret of mean latency (best: lowest mean), P99 against the P99 of that best policy."""
    means = {name: one.latency.mean for name, one in done.items() if name != "clairvoyant"}
    best = min(means, key=lambda name: means[name])
    worse = {**regrets(means)}
    return {
        name: Row(
            worse[name],
            done[name].latency.p99 / done[best].latency.p99 - 1.0,
            done[name].speculative_share,
            means[name] / means["least-load"] - 1.0,
        )
        for name in means
    }


Results = dict[tuple[str, str, float], list[dict[str, Row]]]
"""Rows of every seed, by (trace, drafter, load)."""


def summary(results: Results, markdown: bool) -> Iterator[str]:
    """Per policy: mean regret, the worst scenario (mean of its seeds), the worst run, P99, the worst run against least-load."""
    bar = "|" if markdown else " "
    heads = ("policy", "mean", "worst", "worst run", "P99 mean", "worst vs least-load")
    yield bar + bar.join(f"{head:<22}" if not n else f"{head:>10}" for n, head in enumerate(heads)) + bar
    if markdown:
        yield "|---|---|---|---|---|---|"
    runs = [result for seeds in results.values() for result in seeds]
    for name in sorted(runs[0], key=lambda n: sum(run[n].mean for run in runs)):
        cells = (
            mean(run[name].mean for run in runs),
            max(mean(seed[name].mean for seed in seeds) for seeds in results.values()),
            max(run[name].mean for run in runs),
            mean(run[name].p99 for run in runs),
            max(run[name].against_least_load for run in runs),
        )
        yield bar + bar.join((f"{name:<22}", *(f"{cell:>+10.1%}" for cell in cells))) + bar


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--policies", nargs="+", default=[*PRODUCTION, *REFERENCES])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--save", type=Path, help="append every run as a JSON line")
    return parser.parse_args()


def main() -> None:
    """Run all scenarios and print."""
    args = parse()
    results: Results = {}
    for scenario in scenarios(args):
        result = rows(run(scenario, args.policies))
        results.setdefault((scenario.trace, scenario.drafter, scenario.load), []).append(result)
        mine, best = result[args.policies[0]], min(result, key=lambda name: result[name].mean)
        print(  # noqa: T201  # a script for people
            f"{scenario.name:<62} {args.policies[0]} {mine.mean:+.1%} p99 {mine.p99:+.1%} spec {mine.share:.2f} "
            f"least-load {result['least-load'].mean:+.1%} best {best}",
            flush=True,
        )
        if args.save:
            with args.save.open("a") as file:
                file.write(json.dumps({"scenario": scenario.name, **result}) + "\n")
    sys.stdout.write("\n".join(summary(results, args.markdown)) + "\n")


if __name__ == "__main__":
    main()
