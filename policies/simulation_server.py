"""A modelled inference server: continuous batching, chunked prefill, a KV limit, drafts. Simulated, not a GPU.

One engine step with ``n`` requests decoding and ``p`` prompt tokens prefilled beside them takes

    F + κ·(n + k·Σ mᵢ + p) + η·KV + δ·k·[n > 0]                                            seconds

F reads the weights once, κ is compute per token, η reads one cached token, δ drafts one token, k is the
depth and mᵢ the share of request i's steps that carry drafts (``design``: the cost rule of
``policies/README.md``). The model follows vLLM V1's scheduler where it matters to a router:

- decodes go first, prompts share what is left of ``chunk_tokens``, in the order of arrival;
- a request starts only while fewer than ``max_requests`` run and its tokens fit into the KV cache. Room
  for the whole answer is set aside at the start, where vLLM would preempt and recompute later;
- a newcomer joins at the next step border, and a step in which its prompt ends yields its first token.

Left out on purpose: the quadratic part of prefill attention (under 10 % up to 30k tokens on an 8B model),
prefix caches, and the time between engine and gateway.

Nothing here steps one by one: while the crowd stays the same KV grows by the same tokens per step, so J
steps take ``J·step + η·g·J·(J−1)/2`` seconds, and a plan runs in one go to the next finish, the next end
of a prompt, or the border after an arrival. Borders are exact; the cost is a few heap operations per request.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import ceil, inf, sqrt
from typing import NamedTuple

from policies.simulation_workload import Drafter, Job

_LEAST_CHUNK = 64
"""Prompt tokens a step always takes, however many decodes there are: vLLM's decodes cannot starve prefill for ever."""


class Engine(NamedTuple):
    """One modelled server: hardware, settings and drafter."""

    name: str
    fixed_seconds: float
    """F: one step with nothing in it."""
    token_seconds: float
    """κ: compute of one token in a step, prompt or decode or draft to verify."""
    cache_seconds: float
    """η: reading one cached token in a step."""
    drafter: Drafter | None = None
    draft_seconds: float = 0.0
    """δ: drafting one token."""
    chunk_tokens: int = 2048
    """Tokens one step may hold (vLLM: max_num_batched_tokens)."""
    max_requests: int = 256
    """Requests in the batch (vLLM: max_num_seqs)."""
    cache_tokens: int = 400_000
    """Tokens the KV cache holds."""

    @property
    def depth(self) -> int:
        """k: draft tokens per step, 0 on a plain server."""
        return self.drafter.depth if self.drafter else 0

    @property
    def lane(self) -> str:
        """``speculative`` with a drafter, else ``plain``."""
        return "speculative" if self.drafter else "plain"


class Flight:
    """One request on a server: how far it is and what it will take."""

    __slots__ = (
        "accepted",
        "drafted",
        "ended_at",
        "finish",
        "first_at",
        "growth",
        "job",
        "left",
        "steps",
        "verify",
        "withdrawn",
    )

    def __init__(self, job: Job, drafter: Drafter | None) -> None:
        tokens = job.output_tokens - 1
        self.job = job
        self.left = job.input_tokens
        self.steps, share = drafter.steps(job.kind, tokens, job.luck, job.noise) if drafter else (tokens, 0.0)
        self.growth = tokens / self.steps if self.steps else 0.0
        self.verify = 1.0 + share * (drafter.depth if drafter else 0)
        self.drafted = round(self.steps * (self.verify - 1.0))
        self.accepted = tokens - self.steps
        self.finish = 0
        self.first_at = inf
        self.ended_at = inf
        self.withdrawn = False


class Server:
    """The state of one engine. ``due`` is the next step border at which something happens; ``inf`` when idle."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.due = inf
        self.stamp = 0
        self.heard_at = 0.0
        self.pace = 1.0
        self._waiting: deque[Flight] = deque()
        self._prefill: deque[Flight] = deque()
        self._decode: list[tuple[int, int, Flight]] = []
        self._step = 0
        self._cached = self._growth = self._verify = 0.0
        self._reserved = 0
        self._order = 0
        self._from = 0.0
        self._plan = 0
        self._chunk = 0
        self._first_step = self._bend = 0.0
        self._gap = 0.0
        self._frozen_until = 0.0

    @property
    def in_flight(self) -> int:
        """Requests waiting, in prefill or decoding."""
        return len(self._waiting) + len(self._prefill) + len(self._decode)

    def submit(self, flight: Flight, at: float) -> None:
        """Queue a request; it joins the batch at the next step border."""
        self._waiting.append(flight)
        if self.due == inf:
            self._start(max(at, self._frozen_until))
        else:
            self._cut(at)

    def withdraw(self, flight: Flight) -> None:
        """Take back a request that has no first token. The step that works on it runs to its end."""
        flight.withdrawn = True

    def slow(self, at: float, factor: float) -> None:
        """From the next step border on every step takes ``factor`` times as long as the model says."""
        self._cut(at)
        self.pace = factor

    def hang(self, at: float, seconds: float) -> None:
        """Say and do nothing for so long; the step under way ends that much later."""
        if self.due < inf:
            self._cut(at)
            self._listen(at)
            self.due += seconds
            self.stamp += 1
        self._frozen_until = at + seconds

    def heard(self, at: float) -> tuple[float, float]:
        """When the last chunk left before ``at``, and the longest step since this was last asked."""
        self._listen(at)
        longest, self._gap = self._gap, 0.0
        return self.heard_at, longest

    def _listen(self, at: float) -> None:
        if self._decode and self._frozen_until <= at and self._plan > 1:
            steps = min(int(self._elapsed(at - self._from)), self._plan - 1)
            self.heard_at = max(self.heard_at, self._from + self._took(steps))

    def border(self) -> tuple[list[Flight], list[Flight]]:
        """Arrive at ``due``: requests with a first token now, requests that are done now. Plans what comes next."""
        at = self.due
        self._step += self._plan
        self._cached += self._growth * self._plan
        started = self._prefilled(at) if self._prefill else []
        ended = self._ended(at)
        if self._decode or started or ended:
            self.heard_at = at
        self._start(at)
        return started, ended

    def _prefilled(self, at: float) -> list[Flight]:
        budget, started, queue = self._chunk * self._plan, [], self._prefill
        while queue and (queue[0].withdrawn or budget >= queue[0].left):
            flight = queue.popleft()
            if flight.withdrawn:
                self._release(flight)
                continue
            budget -= flight.left
            flight.first_at = at
            started.append(flight)
            self._join(flight)
        if queue:
            queue[0].left -= budget
        return started

    def _release(self, flight: Flight) -> None:
        self._reserved -= flight.job.input_tokens + flight.job.output_tokens

    def _join(self, flight: Flight) -> None:
        flight.finish = self._step + flight.steps
        self._order += 1
        heappush(self._decode, (flight.finish, self._order, flight))
        self._cached += flight.job.input_tokens + 1
        self._growth += flight.growth
        self._verify += flight.verify

    def _ended(self, at: float) -> list[Flight]:
        ended = []
        while self._decode and self._decode[0][0] <= self._step:
            flight = heappop(self._decode)[2]
            flight.ended_at = at
            self._release(flight)
            self._cached -= flight.job.input_tokens + flight.job.output_tokens
            self._growth -= flight.growth
            self._verify -= flight.verify
            ended.append(flight)
        if not self._decode:
            self._cached = self._growth = self._verify = 0.0
        return ended

    def _admit(self) -> None:
        waiting, engine = self._waiting, self.engine
        while waiting:
            job = waiting[0].job
            tokens = job.input_tokens + job.output_tokens
            running = len(self._prefill) + len(self._decode)
            if waiting[0].withdrawn:
                waiting.popleft()
            elif running and (running >= engine.max_requests or self._reserved + tokens > engine.cache_tokens):
                return
            else:
                self._reserved += tokens
                self._prefill.append(waiting.popleft())

    def _start(self, at: float) -> None:
        """Plan from a step border: as many equal steps as nothing can happen in."""
        self._admit()
        self.stamp += 1
        self._from = at
        while self._prefill and self._prefill[0].withdrawn:
            self._release(self._prefill.popleft())
        if not self._prefill and not self._decode:
            self.due = inf
            return
        engine, tokens = self.engine, self._verify
        self._plan = self._decode[0][0] - self._step if self._decode else 1 << 30
        self._chunk = 0
        if self._prefill:
            left = self._prefill[0].left
            room = max(int(engine.chunk_tokens - tokens), _LEAST_CHUNK)
            if left < room:
                self._plan, self._chunk = 1, self._fill(self._prefill, room)
            else:
                self._plan, self._chunk = min(self._plan, left // room), room
            tokens += self._chunk
        seconds = engine.fixed_seconds + engine.token_seconds * tokens + engine.cache_seconds * self._cached
        if self._decode:
            seconds += engine.draft_seconds * engine.depth
        self._first_step = seconds * self.pace
        self._bend = engine.cache_seconds * self._growth * self.pace / 2.0
        self._fix(self._plan)

    @staticmethod
    def _fill(queue: Iterable[Flight], room: int) -> int:
        """Prompt tokens of the queue that fit into one step."""
        tokens = 0
        for flight in queue:
            tokens += flight.left
            if tokens >= room:
                return room
        return tokens

    def _fix(self, steps: int) -> None:
        self._plan = steps
        self.due = self._from + self._took(steps)
        if self._decode:
            self._gap = max(self._gap, self._first_step + 2.0 * self._bend * (steps - 1))

    def _took(self, steps: int) -> float:
        """Seconds of the first ``steps`` steps of the plan."""
        return steps * (self._first_step + self._bend * (steps - 1))

    def _elapsed(self, seconds: float) -> float:
        """Inverse of ``_took``, in fractions of a step."""
        first, bend = self._first_step - self._bend, self._bend
        if bend * seconds < 1e-9 * first * first:
            return seconds / first
        return (sqrt(first * first + 4.0 * bend * seconds) - first) / (2.0 * bend)

    def _cut(self, at: float) -> None:
        """End the plan at the first step border at or after ``at``; nothing to cut while frozen or in the last step."""
        if self.due == inf or self._plan <= 1 or at < self._frozen_until:
            return
        steps = max(1, ceil(self._elapsed(at - self._from) - 1e-9))
        if steps < self._plan:
            self._fix(steps)
            self.stamp += 1
