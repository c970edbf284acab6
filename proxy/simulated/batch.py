"""Continuous batching without a clock: requests in, engine steps out. Each step says how long it would take."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from proxy.simulated.character import Character
from proxy.simulated.writer import Answer, kind_of, write

_BLOCK_CHARACTERS = 64
_BLOCK_TOKENS = 16


class Order(NamedTuple):
    """What a request asks the engine to generate."""

    prompt: str
    prompt_tokens: int
    cap: int
    temperature: float = 1.0
    seed: int | None = None
    wants_json: bool = False
    ignore_eos: bool = False
    least: int = 0
    stop: tuple[str, ...] = ()


@dataclass(eq=False)
class Job:
    """One answer being generated."""

    order: Order
    answer: Answer
    random: Random
    alpha: float
    drafting: float
    length: int
    to_read: int
    cached: int
    text: str = ""
    tokens: int = 0
    finish: str | None = None
    histogram: list[int] = field(default_factory=list)
    """Verification steps by number of accepted draft tokens."""
    drafted: int = 0

    @property
    def steps(self) -> int:
        """Steps that verified a draft."""
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        """Draft tokens accepted."""
        return sum(number * count for number, count in enumerate(self.histogram))


class Grown(NamedTuple):
    """What one step added to one answer."""

    job: Job
    pieces: tuple[str, ...]


class Step(NamedTuple):
    """One engine step."""

    seconds: float
    grown: tuple[Grown, ...]


@dataclass
class Counters:
    """Totals since the start or the last reset."""

    depth: int
    drafts: int = 0
    draft_tokens: int = 0
    accepted: list[int] = field(default_factory=list)
    generated: int = 0
    prompt: int = 0
    cached: int = 0
    finished: dict[str, int] = field(default_factory=dict)

    def count(self, drafted: int, histogram: Sequence[int]) -> None:
        """Drafts of so many tokens in all were verified; ``histogram`` as in ``Job``."""
        self.accepted += [0] * (max(self.depth, len(histogram) - 1) - len(self.accepted))
        self.drafts += sum(histogram)
        self.draft_tokens += drafted
        for accepted, times in enumerate(histogram):
            for position in range(accepted):
                self.accepted[position] += times


class Batch:
    """The requests of one engine: some read or decode, the others wait."""

    def __init__(self, character: Character) -> None:
        """An idle engine."""
        self.character = character
        self.running: list[Job] = []
        self.waiting: deque[Job] = deque()
        self.counters = Counters(character.depth)
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._orders = 0

    def admit(self, order: Order) -> Job:
        """Queue a request."""
        self._orders += 1
        # Greedy text depends on the prompt alone; sampled text on the request's seed, or else on its turn.
        turn = 0 if order.temperature == 0 else order.seed if order.seed is not None else self._orders
        source = f"{self.character.seed}|{turn}|{order.prompt}"
        kind = kind_of(order.prompt, order.wants_json)
        answer = write(kind, order.prompt, Random(source), self.character.output_scale)
        natural = order.cap if order.ignore_eos else max(answer.natural, order.least)
        cached = self._cached(order)
        job = Job(
            order=order,
            answer=answer,
            random=Random(f"drafts|{source}"),  # apart from the text's: both lanes write the same words
            alpha=self.character.alpha(kind, order.temperature),
            drafting=self.character.drafting(kind, order.temperature) if self.character.depth else 0.0,
            length=min(order.cap, natural),
            to_read=order.prompt_tokens - cached,
            cached=cached,
        )
        self.waiting.append(job)
        return job

    def drop(self, job: Job) -> None:
        """Forget a request, finished or not."""
        if job in self.running:
            self.running.remove(job)
        elif job in self.waiting:
            self.waiting.remove(job)
        if job.finish is None:
            job.finish = "abort"
            self._ended(job)

    def step(self) -> Step:
        """Advance every running request; call only when there is one."""
        while self.waiting and len(self.running) < self.character.max_requests:
            self.running.append(self.waiting.popleft())
        decoding = [job for job in self.running if not job.to_read]
        read, ready = self._read()
        grown = [self._grow(job, 0) for job in ready]
        drafted = {job: self._draft_length(job) for job in decoding}
        grown += [self._grow(job, drafted[job]) for job in decoding]
        verified = sum(1 + length for length in drafted.values())
        seconds = self.character.step_seconds(verified, any(drafted.values()), read)
        self.running = [job for job in self.running if job.finish is None]
        return Step(seconds, tuple(grown))

    def tokens_held(self) -> int:
        """Tokens in the cache of running requests."""
        return sum(job.order.prompt_tokens - job.to_read + job.tokens for job in self.running)

    def _read(self) -> tuple[int, list[Job]]:
        left, ready = self.character.chunk_tokens, []
        for job in self.running:
            if not job.to_read:
                continue
            taken = min(job.to_read, left)
            job.to_read -= taken
            left -= taken
            if not job.to_read:
                ready.append(job)
                self.counters.prompt += job.order.prompt_tokens
                self.counters.cached += job.cached
        return self.character.chunk_tokens - left, ready

    def _draft_length(self, job: Job) -> int:
        wanted = min(self.character.depth, job.length - job.tokens - 1)
        return wanted if wanted > 0 and job.random.random() < job.drafting else 0

    def _grow(self, job: Job, drafted: int) -> Grown:
        accepted = 0
        while accepted < drafted and job.random.random() < job.alpha:
            accepted += 1
        if drafted:
            job.histogram += [0] * (max(self.character.depth, accepted) + 1 - len(job.histogram))
            job.histogram[accepted] += 1
            job.drafted += drafted
            if not self.character.counts_at_end:
                self.counters.count(drafted, [0] * accepted + [1])
        got = tuple(next(job.answer.tokens) for _ in range(min(accepted + 1, job.length - job.tokens)))
        got = self._stopped(job, got)
        job.tokens += len(got)
        self.counters.generated += 0 if self.character.counts_at_end else len(got)
        if job.finish is None and job.tokens >= job.length:
            job.finish = "length" if job.length == job.order.cap else "stop"
        if job.finish is not None:
            self._ended(job)
        return Grown(job, got)

    def _stopped(self, job: Job, got: tuple[str, ...]) -> tuple[str, ...]:
        before, job.text = len(job.text), job.text + "".join(got)
        ends = [at for word in job.order.stop if (at := job.text.find(word, max(before - len(word), 0))) >= 0]
        if not ends:
            return got
        job.finish, job.text = "stop", job.text[: max(min(ends), before)]
        return (job.text[before:],)

    def _ended(self, job: Job) -> None:
        if self.character.counts_at_end:
            self.counters.count(job.drafted, job.histogram)
            self.counters.generated += job.tokens
        finish = job.finish or "abort"
        self.counters.finished[finish] = self.counters.finished.get(finish, 0) + 1

    def _cached(self, order: Order) -> int:
        link, known, matched = 0, True, 0
        for at in range(0, len(order.prompt) - _BLOCK_CHARACTERS, _BLOCK_CHARACTERS):
            link = hash((link, order.prompt[at : at + _BLOCK_CHARACTERS]))
            known = known and link in self._blocks
            matched += known
            self._remember(link)
        share = matched * _BLOCK_CHARACTERS / max(len(order.prompt), 1)
        whole = int(order.prompt_tokens * share) // _BLOCK_TOKENS * _BLOCK_TOKENS
        return min(whole, order.prompt_tokens - 1)

    def _remember(self, link: int) -> None:
        if not self.character.cache_blocks:
            return
        self._blocks[link] = None
        self._blocks.move_to_end(link)
        if len(self._blocks) > self.character.cache_blocks:
            self._blocks.popitem(last=False)
