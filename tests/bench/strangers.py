"""Writes made-up traces of services unlike the public ones, for ``regret.py``. Nothing was tuned on them.

python tests/bench/strangers.py FOLDER [--requests 5000]
"""

import argparse
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import NamedTuple

from policies.simulation_workload import Asked, named, normal, uniform

GAP, SIZE, ANSWER, WHO = range(40, 44)
"""Streams of draws."""


class App(NamedTuple):
    """One tenant: median tokens of prompt and answer, their log-normal widths, its weight among the others."""

    name: str
    prompt: int
    prompt_width: float
    answer: int
    answer_width: float
    weight: float = 1.0


def tenants() -> tuple[App, ...]:
    """Forty small customers with nothing in common."""
    prompts, answers = (100, 400, 1500, 6000), (8, 60, 300, 1200)
    return tuple(
        App(
            f"tenant-{n}",
            prompts[int(4 * uniform(n, 50, 0))],
            0.6,
            answers[int(4 * uniform(n, 50, 1))],
            0.7,
            uniform(n, 50, 2) ** 2,
        )
        for n in range(40)
    )


SERVICES: dict[str, tuple[float, tuple[App, ...]]] = {
    "long-chat": (1.5, (App("chat", 8000, 1.1, 280, 0.8),)),
    "reasoning": (
        1.0,
        (
            App("deep", 300, 0.8, 2500, 0.9, 5),
            App("quick", 1500, 0.6, 900, 0.8, 3),
            App("read", 5000, 0.8, 300, 0.7, 2),
        ),
    ),
    "bursts": (2.0, (App("chat", 600, 1.0, 250, 0.9),)),
    "agents": (
        1.3,
        (App("agent", 30000, 0.7, 400, 0.8, 3), App("chat", 500, 0.8, 300, 0.8, 5), App("label", 1200, 0.5, 5, 0.5, 2)),
    ),
    "tenants": (1.2, tenants()),
}
"""Name → (burstiness of the gaps between requests, applications)."""


def service(name: str, requests: int) -> Iterator[Asked]:
    """Requests of one service. A burst is a gap of nothing, a lull one far above the mean."""
    wild, apps = SERVICES[name]
    seed, at = named(name) % 1000, 0.0
    total = sum(app.weight for app in apps)
    for n in range(requests):
        at += exp(wild * normal(seed, GAP, n) - wild * wild / 2.0)
        app = chosen(apps, total * uniform(seed, WHO, n))
        prompt = min(120_000, max(1, round(app.prompt * exp(app.prompt_width * normal(seed, SIZE, n)))))
        answer = min(32_000, max(1, round(app.answer * exp(app.answer_width * normal(seed, ANSWER, n)))))
        yield Asked(at, app.name, prompt, answer)


def chosen(apps: tuple[App, ...], draw: float) -> App:
    """The application a draw falls on."""
    for app in apps:
        draw -= app.weight
        if draw < 0.0:
            return app
    return apps[-1]


def main() -> None:
    """Write every service as a CSV that ``draftlane simulate`` reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--requests", type=int, default=5000)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in SERVICES:
        rows = [
            f"{one.at:.3f},{one.app},{one.input_tokens},{one.output_tokens}" for one in service(name, args.requests)
        ]
        text = "t_s,client,input_tokens,output_tokens\n" + "\n".join(rows) + "\n"
        (args.folder / f"{name}.csv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
