"""Something changes in mid-run: how soon does break-even do as well as the policy that knows? Simulated; no GPU was used.

    python tests/bench/regimes.py [--seeds 8] [--markdown]

Own traffic (Poisson arrivals, log-normal sizes, three applications), one plain server and two that speculate. At
request 2,000 one of five things happens. Both policies meet the same requests with the same luck. Reported, as the
mean over seeds: excess mean latency of requests 200–400 and 200–1,200 after the change over the policy that knows
(parameters, acceptance, change, all at once), and the largest number of requests in flight on one server,
relative to the largest under the policy that knows (a lane that collapses shows there).
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from math import exp, log
from typing import NamedTuple

from policies.simulation import Change, Served, simulate
from policies.simulation_gateway import router
from policies.simulation_server import Engine
from policies.simulation_workload import Acceptance, Asked, Drafter, Job, at_rate, jobs, normal, uniform
from proxy import presets
from proxy.hardware import CHIPS, MODELS, WEIGHTS

BEFORE, AFTER = 2000, 2400
GAP, SIZE, ANSWER, WHO = 11, 12, 13, 14
"""Streams of draws, beside those of ``policies.simulation_workload``."""
APPS = {"writer": (400, 350, 0.5), "helper": (900, 150, 0.3), "search": (2500, 40, 0.2)}
"""Application → median prompt tokens, median answer tokens, share of the requests."""
DRAFTER = Drafter(
    "modelled",
    3,
    {
        "good": Acceptance.of_chance(0.75, 3, 0.2),
        "usual": Acceptance.of_chance(0.60, 3, 0.25),
        "bad": Acceptance.of_chance(0.20, 3, 0.3),
    },
)
KINDS = {"writer": "good", "helper": "usual", "search": "usual"}
BASE = presets.hardware(CHIPS["h100"], MODELS["llama-3.1-8b"], WEIGHTS["bf16"])
FLEET = (
    presets.plain("plain", BASE),
    presets.speculative("spec-1", BASE, DRAFTER, 0.10),
    presets.speculative("spec-2", BASE, DRAFTER, 0.10),
)


class Story(NamedTuple):
    """A run in which something changes with request ``BEFORE``."""

    jobs: list[Job]
    changes: tuple[Change, ...] = ()


def traffic(seed: int, count: int, apps: dict[str, tuple[int, int, float]], salt: int = 0) -> list[Asked]:
    """Poisson arrivals at one per second (``at_rate`` sets the pace) with log-normal sizes."""
    at, made = 0.0, []
    for index in range(count):
        number = index + 100_000 * salt
        at -= log(1.0 - uniform(seed, GAP, number))
        name = drawn(uniform(seed, WHO, number), apps)
        prompt, answer, _ = apps[name]
        size = max(1, round(prompt * exp(0.6 * normal(seed, SIZE, number))))
        made.append(Asked(at, name, size, max(1, round(answer * exp(0.7 * normal(seed, ANSWER, number))))))
    return made


def drawn(draw: float, apps: dict[str, tuple[int, int, float]]) -> str:
    """An application by its share."""
    for name, (_, _, share) in apps.items():
        draw -= share
        if draw < 0.0:
            return name
    return next(iter(apps))


def paced(asked: Sequence[Asked], load: float) -> list[Asked]:
    """At a share of what the fleet serves at batches of 64."""
    return at_rate(asked, load * len(FLEET) * presets.capacity(BASE, asked))


def joined(first: list[Asked], second: list[Asked], seed: int) -> list[Job]:
    """One after the other."""
    end = first[-1].at
    return jobs([*first, *(one._replace(at=one.at + end) for one in second)], seed, KINDS)


def steady(seed: int, load: float = 0.6) -> list[Job]:
    """Nothing changes."""
    return jobs(paced(traffic(seed, BEFORE + AFTER, APPS), load), seed, KINDS)


def acceptance_falls(seed: int) -> Story:
    """The acceptance of one application's drafts falls from 0.75 to 0.2 per token."""
    calm = steady(seed)
    return Story(
        [one._replace(kind="bad") if n >= BEFORE and one.app == "writer" else one for n, one in enumerate(calm)]
    )


def mix_flips(seed: int) -> Story:
    """One application alone: chat, then prompts of 30,000 tokens under the same name."""
    chat = paced(traffic(seed, BEFORE, {"writer": (400, 350, 1.0)}), 0.6)
    books = paced(traffic(seed, AFTER, {"writer": (30_000, 120, 1.0)}, salt=1), 0.6)
    return Story(joined(chat, [one._replace(input_tokens=min(one.input_tokens, 120_000)) for one in books], seed))


def server_slows(seed: int) -> Story:
    """One speculative server takes twice as long for everything."""
    calm = steady(seed, 0.5)
    return Story(calm, (Change(calm[BEFORE].at, "spec-1", "slow", 2.0),))


def server_hangs(seed: int) -> Story:
    """One speculative server says nothing for a minute."""
    calm = steady(seed, 0.4)
    return Story(calm, (Change(calm[BEFORE].at, "spec-1", "hang", 60.0),))


def load_jumps(seed: int) -> Story:
    """Eight times as many requests per second."""
    quiet = paced(traffic(seed, BEFORE, APPS), 0.1)
    return Story(joined(quiet, paced(traffic(seed, AFTER, APPS, salt=1), 0.8), seed))


STORIES: dict[str, Callable[[int], Story]] = {
    "acceptance 0.75 → 0.2": acceptance_falls,
    "chat → 30k prompts": mix_flips,
    "a server halves its speed": server_slows,
    "a server hangs for 60 s": server_hangs,
    "load × 8": load_jumps,
}


class Outcome(NamedTuple):
    """One policy on one story, after the change."""

    soon: float
    """Summed latency of requests 200–400."""
    later: float
    """Of requests 200–1,200."""
    crowd: int
    """Most requests in flight on one server, from the change on."""


def outcome(story: Story, policy: str, engines: Sequence[Engine] = FLEET) -> Outcome:
    """Run one policy through a story."""
    served = simulate(story.jobs, engines, router(policy, story.jobs, engines, story.changes), story.changes)
    latency = {int(one.job.id[1:]): one.latency for one in served}
    soon = sum(latency[n] for n in range(BEFORE + 200, BEFORE + 400))
    later = sum(latency[n] for n in range(BEFORE + 200, BEFORE + 1200))
    return Outcome(soon, later, most_in_flight(served, story.jobs[BEFORE].at))


def most_in_flight(served: Sequence[Served], since: float) -> int:
    """The largest crowd on one server at or after ``since``."""
    most = 0
    for name in {one.backend for one in served}:
        borders = [(one.job.at, 1) for one in served if one.backend == name]
        borders += [(one.ended_at, -1) for one in served if one.backend == name]
        crowd = 0
        for at, change in sorted(borders):
            crowd += change
            if at >= since:
                most = max(most, crowd)
    return most


def main() -> None:
    """Run every story with every seed and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--policies", nargs="+", default=["break-even", "least-load", "fixed-ratio"])
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    rule = "|" if args.markdown else ""
    heads = ("change", "policy", "200–400", "200–1,200", "worst seed", "crowd ×")
    sys.stdout.write(
        rule + rule.join(f"{head:>26}" if n < 2 else f"{head:>12}" for n, head in enumerate(heads)) + rule + "\n"
    )
    if args.markdown:
        sys.stdout.write("|---|---|---|---|---|---|\n")
    for title, tell in STORIES.items():
        stories = [tell(seed) for seed in range(args.seeds)]
        known = [outcome(story, "knows-cost") for story in stories]
        for policy in args.policies:
            done = [outcome(story, policy) for story in stories]
            sys.stdout.write(_row(title, policy, done, known, rule) + "\n")
            sys.stdout.flush()


def _row(title: str, policy: str, done: Sequence[Outcome], known: Sequence[Outcome], rule: str) -> str:
    soon = sum(one.soon for one in done) / sum(one.soon for one in known) - 1.0
    later = sum(one.later for one in done) / sum(one.later for one in known) - 1.0
    worst = max(one.later / best.later - 1.0 for one, best in zip(done, known, strict=True))
    crowd = max(one.crowd / best.crowd for one, best in zip(done, known, strict=True))
    cells = (f"{title:>26}", f"{policy:>26}", *(f"{x:>+12.1%}" for x in (soon, later, worst)), f"{crowd:>12.2f}")
    return rule + rule.join(cells) + rule


if __name__ == "__main__":
    main()
