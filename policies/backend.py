"""What is known of one backend: its load, its health, and what its answers taught."""

from typing import Final

from policies.acceptance import Counters, Yields
from policies.breaker import Breaker
from policies.decision import SPECULATIVE
from policies.events import Joined, PeerLoad, Pulse, Scraped
from policies.settings import PolicySettings
from policies.speed import Speed

AHEAD: Final = 0.4
"""Discount on requests that wait for their first token when the price of a prompt is reckoned: they are read before it and
feel it in their decode only. (All of them at full price: a queue of short answers frightens away more than it should.)"""


class Peer:
    """Another replica's share of a backend's load."""

    __slots__ = ("in_flight", "prefilled", "sequence", "waiting_tokens")

    def __init__(self, sequence: int, in_flight: int, waiting_tokens: float, prefilled: float) -> None:
        self.sequence = sequence
        self.in_flight = in_flight
        self.waiting_tokens = waiting_tokens
        self.prefilled = prefilled


class Backend:
    """One engine URL. Counts are of all replicas together unless they say ``own``."""

    __slots__ = (
        "base",
        "base_per_step",
        "breaker",
        "busy_until",
        "cache_trust",
        "capacity",
        "counters",
        "crowd_integral",
        "decoding",
        "depth",
        "drafts_always",
        "draining",
        "engine",
        "finished",
        "finished_at",
        "foreign_waiting",
        "heard_at",
        "in_flight",
        "lane",
        "longest_gap",
        "max_context_tokens",
        "max_requests",
        "models",
        "name",
        "one_event_per_step",
        "own_in_flight",
        "own_prefilled",
        "own_waiting_tokens",
        "peers",
        "per_input",
        "per_output",
        "per_step",
        "prefill",
        "prefilled",
        "price_weight",
        "prompt_mean",
        "refuses",
        "request_seconds",
        "slope",
        "speculative",
        "speed",
        "stalled",
        "taught_until",
        "touched_at",
        "upfront",
        "waiting",
        "waiting_output",
        "waiting_tokens",
        "warm",
        "width",
        "without_first",
        "yields",
    )

    def __init__(self, joined: Joined, settings: PolicySettings) -> None:
        # long: one line per figure
        self.name = joined.backend
        self.price_weight = settings.price_weight
        self.breaker = Breaker(settings.breaker)
        self.in_flight = self.own_in_flight = self.without_first = 0
        self.waiting_tokens = self.own_waiting_tokens = 0.0
        """Uncached prompt tokens of requests without a first token (p)."""
        self.prefilled = self.own_prefilled = 0.0
        """Uncached prompt tokens prefilled so far (Q)."""
        self.waiting_output = 0.0
        """Output tokens predicted for requests of ours without a first token."""
        self.prompt_mean = 0.0
        """Decayed mean of uncached prompt tokens per request; 0 before the first."""
        self.foreign_waiting = 0.0
        """Requests of other replicas without a first token, judged by their waiting tokens."""
        self.decoding = 0.0
        """Requests in flight that have their first token."""
        self.crowd_integral = 0.0
        """∫ decoding dt (I)."""
        self.touched_at = joined.at
        self.peers: dict[str, Peer] = {}
        self.stalled = False
        self.busy_until = 0.0
        self.heard_at = joined.at
        self.longest_gap = 0.0
        self.finished = 0
        """Requests of ours that ended well, and those that other replicas learnt from."""
        self.finished_at = joined.at
        self.taught_until: dict[str, float] = {}
        """Class → virtual clock of its lessons (``policies.journey``)."""
        self.request_seconds = 0.0
        """Decayed mean duration of a request; 0 before the first."""
        self.waiting = 0
        """Queue the engine reported last."""
        self.cache_trust = 0.8
        """Cached prompt tokens reported ÷ expected by the prefix memory."""
        self.counters = Counters()
        self.speed = Speed()
        self.describe(joined)
        self.yields = Yields(self.speculative, self.depth)
        self.settle(settings.cold_requests)

    def settle(self, cold_requests: int) -> None:
        """Copy what the learners say to where the decision reads it (a slot costs a third of a chain of lookups)."""
        speed, yields = self.speed, self.yields
        self.prefill, self.base, self.slope = speed.prefill, speed.base, speed.slope
        self.per_step, self.base_per_step = yields.per_step, yields.base
        self.width = 1.0 + yields.drafted if self.speculative else 1.0
        self.warm = speed.completions >= cold_requests
        self.reckon()

    def reckon(self) -> None:
        """Work the load into three coefficients, so that a decision costs three multiplications per backend.

        J = upfront + per_input·in_j + per_output·out/AL: the formula of ``policies.break_even`` with everything put in
        that only changes when a request comes or goes or a learner learns. Called by every method that changes it.
        """
        n, prefill = self.in_flight, self.prefill
        crowd = self._crowd_ahead()
        over = n / self.capacity if n > self.capacity > 0 else 1.0
        self.upfront = prefill * 0.5 * self.waiting_tokens + self.base
        delayed = n - AHEAD * (self.without_first + self.foreign_waiting)
        self.per_input = prefill + self.price_weight * delayed * prefill
        crowding = 0.5 * (self.slope + self.width * prefill)
        self.per_output = over * (self.base + self.slope * (crowd + 1.0)) + self.price_weight * crowd * crowding

    def _crowd_ahead(self) -> float:
        """Requests that will decode beside a newcomer: those decoding now, and of those waiting the share of the time
        ahead that they will spend decoding. A queue of long prompts with short answers is no crowd: taking it for one
        kept decode-heavy requests away from an idle batch, and a reversed assignment of lanes confirmed itself.
        """
        waiting = self.without_first + self.foreign_waiting
        if waiting <= 0.0:
            return self.decoding
        answer = self.waiting_output / self.without_first if self.without_first else 0.0
        decode = answer * (self.base + self.slope * self.decoding) / self.base_per_step
        queue = 0.5 * self.prefill * self.waiting_tokens
        return self.decoding + waiting * decode / max(decode + queue, 1e-9)

    def describe(self, joined: Joined) -> None:
        """Take over what configuration and discovery say; what was learnt stays."""
        self.lane = joined.lane
        self.speculative = joined.lane == SPECULATIVE
        self.models = joined.models
        self.engine = joined.engine
        self.depth = joined.depth
        self.max_context_tokens = joined.max_context_tokens
        self.max_requests = joined.max_requests
        self.refuses = frozenset(joined.refuses)
        self.drafts_always = joined.drafts_always
        self.one_event_per_step = joined.one_event_per_step
        self.draining = joined.draining
        self.capacity = joined.max_requests or 0

    def touch(self, now: float) -> None:
        """Bring the integral of decoding requests up to ``now``; call before every change of the count."""
        passed = now - self.touched_at
        if passed > 0.0:
            self.crowd_integral += self.decoding * passed
            self.touched_at = now

    def take(self, now: float, tokens: float, output: float) -> None:
        """A request of ours was sent here, with this many uncached prompt tokens and predicted output tokens."""
        self.touch(now)
        if self.own_in_flight == 0:
            self.heard_at = now
        self.in_flight += 1
        self.own_in_flight += 1
        self.prompt_mean += (0.05 if self.prompt_mean else 1.0) * (tokens - self.prompt_mean)
        self._wait(1, tokens, output)
        self.reckon()

    def prefill_done(self, tokens: float, output: float) -> None:
        """A request of ours has its first token; ``touch`` first."""
        self.prefilled += tokens
        self.own_prefilled += tokens
        self._wait(-1, -tokens, -output)
        self.reckon()

    def drop(self, now: float, tokens: float, output: float, waiting: bool) -> None:
        """A request of ours is gone from here."""
        self.touch(now)
        self.in_flight -= 1
        self.own_in_flight -= 1
        if waiting:
            self._wait(-1, -tokens, -output)
        else:
            self._count()
        self.reckon()

    def _wait(self, requests: int, tokens: float, output: float) -> None:
        """Change what waits for a first token. Sums of floats do not return to zero by themselves."""
        self.without_first += requests
        self.waiting_output += output
        self.waiting_tokens += tokens
        self.own_waiting_tokens += tokens
        if self.without_first == 0:
            self.own_waiting_tokens = self.waiting_output = 0.0
            self.waiting_tokens = sum(peer.waiting_tokens for peer in self.peers.values()) if self.peers else 0.0
        self._count()

    def _count(self) -> None:
        self.decoding = max(0.0, self.in_flight - self.without_first - self.foreign_waiting)

    def hear_peer(self, told: PeerLoad) -> None:
        """Replace a replica's share; late and duplicated news change nothing."""
        peer = self.peers.get(told.replica)
        if peer is not None and told.sequence <= peer.sequence:
            return
        self.touch(told.at)
        if peer is None:
            peer = self.peers[told.replica] = Peer(told.sequence, 0, 0.0, told.prefilled_tokens)
        self.prefilled += max(0.0, told.prefilled_tokens - peer.prefilled)
        peer.sequence, peer.prefilled = told.sequence, told.prefilled_tokens
        peer.in_flight, peer.waiting_tokens = max(0, told.in_flight), max(0.0, told.waiting_prompt_tokens)
        self.sum_peers()

    def lose_peer(self, replica: str, at: float) -> None:
        """A replica is gone: so is its load."""
        self.touch(at)
        if self.peers.pop(replica, None) is not None:
            self.sum_peers()

    def sum_peers(self) -> None:
        """Add up own and foreign load."""
        self.in_flight = self.own_in_flight + sum(peer.in_flight for peer in self.peers.values())
        foreign = sum(peer.waiting_tokens for peer in self.peers.values())
        self.waiting_tokens = self.own_waiting_tokens + foreign
        others = self.in_flight - self.own_in_flight
        self.foreign_waiting = min(float(others), foreign / self.prompt_mean) if self.prompt_mean else 0.0
        self._count()
        self.reckon()

    def hear_pulse(self, pulse: Pulse, settings: PolicySettings) -> bool:
        """Judge by the last bytes whether the backend hangs; True when that changed.

        Nothing streams during a prefill, so silence is measured against the expected prefill too.
        """
        rules = settings.stall
        self.heard_at = max(self.heard_at, pulse.heard_at)
        self.longest_gap = max(self.longest_gap * rules.gap_decay, min(pulse.longest_gap_seconds, 60.0))
        patience = max(rules.quiet_seconds, rules.gap_factor * self.longest_gap)
        if self.without_first:
            prefill = self.speed.start + self.speed.prefill * self.waiting_tokens
            patience = max(patience, rules.first_token_factor * prefill)
            # Only what flows can fall silent. Who waits may wait behind answers that do not stream (a queue, a full slot).
            flowing = self.own_in_flight - self.without_first if pulse.flowing is None else pulse.flowing
            if flowing <= 0:
                behind = pulse.streams is not None and self.own_in_flight > pulse.streams
                slow = behind or self.speed.completions < settings.cold_requests
                patience = max(patience, rules.cold_first_token_seconds if slow else rules.first_token_seconds)
        before = self.stalled
        self.stalled = self.own_in_flight > 0 and pulse.at - self.heard_at > patience
        return self.stalled != before

    def hear_scrape(self, scraped: Scraped) -> None:
        """Take over the engine's own figures."""
        self.waiting = scraped.waiting or 0
        running = scraped.running or 0
        if not self.max_requests and running and (self.waiting or running > self.capacity > 0):
            self.capacity = running
        news = self.counters.learn(scraped)
        if news is not None:
            self.yields.learn_counters(*news)

    def serves(self, model: str) -> bool:
        """An empty list of models means that it is not known which it serves."""
        return not self.models or model in self.models
