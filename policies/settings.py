"""Every figure the judgement may be tuned by: default, unit and reason, written once.

The configuration file, its JSON Schema, the docs and the error texts derive from these classes (the proxy validates them
with pydantic, which reads the attribute docstrings); nothing here imports anything but the standard library.
Cross-checks live in ``__post_init__`` and raise ``ValueError`` with a sentence an operator can act on.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from policies.decision import PLAIN, SPECULATIVE

_STRICT: dict[str, object] = {"use_attribute_docstrings": True, "extra": "forbid"}

PolicyName = Literal["break-even", "fixed-ratio", "least-load", "all-plain", "all-speculative", "round-robin"]
Lane = Literal["speculative", "plain"]

LANE_RULES: dict[str, Lane] = {
    "min_p": PLAIN,
    "logit_bias": PLAIN,
}
"""vLLM answers 400 to these two when the lane speculates; everywhere else the plain lane is at least as good."""


def _share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is a share and must lie between 0 and 1, not {value}")


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be greater than 0, not {value}")


@dataclass(frozen=True, slots=True)
class FixedRatioSettings:
    """The policy ``fixed-ratio``; its threshold also names the class while no break-even ratio is known."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    threshold: float = 0.05
    """Output tokens per uncached input token above which a request counts as decode-heavy. The best fixed value ranged
    from 0.01 to 2 over public traces; 0.05 was best on the two most common kinds."""
    spill: float = 2.0
    """A request leaves its lane when that lane's least loaded backend has more than this many times the requests of the
    other lane's (plus ``spill_slack``). Without a spill rule one lane collapses as soon as the mix moves."""
    spill_slack: int = 4
    """Requests in flight that never count as a reason to spill: below it no batch is crowded."""

    def __post_init__(self) -> None:
        _positive("fixed_ratio.threshold", self.threshold)
        if self.spill < 1:
            raise ValueError(f"fixed_ratio.spill must be at least 1, not {self.spill}: below it both lanes would spill")
        if self.spill_slack < 0:
            raise ValueError(f"fixed_ratio.spill_slack cannot be negative, not {self.spill_slack}")


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """The circuit breaker of each backend."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    failures_to_open: int = 3
    """Failures in a row (connection faults, truncated answers, 5xx; never a 4xx, never 429/503) before a backend rests.
    Three, so that one poisonous request tried twice cannot do it alone."""
    open_seconds: float = 5.0
    """First rest; it doubles with every failed try."""
    longest_open_seconds: float = 60.0
    """Where the doubling ends: a repaired backend is found again within a minute."""
    half_open_probes: int = 1
    """Requests let through at once while it is uncertain whether the backend is back."""

    def __post_init__(self) -> None:
        _positive("breaker.failures_to_open", self.failures_to_open)
        _positive("breaker.open_seconds", self.open_seconds)
        _positive("breaker.half_open_probes", self.half_open_probes)
        if self.longest_open_seconds < self.open_seconds:
            raise ValueError("breaker.longest_open_seconds must not be shorter than breaker.open_seconds")


@dataclass(frozen=True, slots=True)
class StallSettings:
    """The watchdog: requests in flight and no byte for too long."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    quiet_seconds: float = 1.0
    """Silence that is never a stall."""
    gap_factor: float = 6.0
    """A stall is silence longer than this many times the longest gap seen lately. Modelled: a hung backend costs
    +163 % mean latency without the watchdog, +1.2 % with it."""
    gap_decay: float = 0.98
    """Forgetting of the longest gap per pulse."""
    first_token_factor: float = 4.0
    """While a backend has only requests without a first token, silence of this many times their expected prefill time
    is still patience: nothing streams during a prefill."""

    first_token_seconds: float = 10.0
    """And at least this long: an engine that prefills, compiles a grammar or loads an adapter streams nothing, and a few
    quick requests before say little about it. A hung backend that streams to others is found by their silence, sooner."""

    cold_first_token_seconds: float = 90.0
    """The same while a backend is cold: a first request may compile kernels (10–65 s were measured on vLLM), and nothing
    is known yet of how long its prompts take."""

    def __post_init__(self) -> None:
        _positive("stall.quiet_seconds", self.quiet_seconds)
        _positive("stall.cold_first_token_seconds", self.cold_first_token_seconds)
        _positive("stall.first_token_seconds", self.first_token_seconds)
        if self.gap_factor < 1 or self.first_token_factor < 1:
            raise ValueError("stall.gap_factor and stall.first_token_factor must be at least 1")
        _share("stall.gap_decay", self.gap_decay)


@dataclass(frozen=True, slots=True)
class VerdictSettings:
    """When speculation counts as paying, per model and class."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    margin: float = 0.05
    """``pays`` needs the lower bound of the gain above 1 plus this; ``does not pay`` the upper bound below 1. The gap
    keeps a verdict from swinging on noise."""
    confidence_z: float = 1.96
    """Normal quantile of the interval (1.96: two-sided 95 %), taken over requests. Intervals over steps are too narrow
    by a design effect of 2–7."""
    min_requests: int = 10
    """Requests needed on each lane before a verdict (±10 % on acceptance length takes 3–52 requests)."""
    dwell_seconds: float = 60.0
    """Shortest life of a verdict."""
    first_looks: int = 0
    """Requests that a class in use gets on each lane before anything else is asked of it: what copied code or fresh prose
    gains cannot be known from other applications. 0 waits for the ordinary probes, about one request in a hundred; 1 cost
    0.3 % of mean latency on a trace of many small applications (modelled). The demonstration has no time and sets 2."""
    probe_seconds: float = 300.0
    """A lane that has not served a class for this long gets one request of it, so that every verdict stays
    reversible."""
    probe_requests: int = 25
    """And at least this many requests of the class lie between two probes: rare classes are not probed to death."""
    probe_batch: int = 3
    """Probes whose results decide whether a ``does not pay`` is lifted."""
    aversion: float = 1.05
    """While a class is known not to gain, a speculative backend must be cheaper by this factor to get its requests;
    it stays usable as spare capacity, because an empty slow lane still beats a queue."""
    memory_requests: int = 100
    """Effective number of requests a verdict is based on; older ones fade."""

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ValueError(f"verdict.margin cannot be negative, not {self.margin}")
        _positive("verdict.confidence_z", self.confidence_z)
        _positive("verdict.min_requests", self.min_requests)
        _positive("verdict.probe_batch", self.probe_batch)
        if self.first_looks < 0:
            raise ValueError(f"verdict.first_looks cannot be negative, not {self.first_looks}")
        if self.aversion < 1:
            raise ValueError(f"verdict.aversion must be at least 1, not {self.aversion}")
        if self.memory_requests < 2 * self.min_requests:
            raise ValueError("verdict.memory_requests must be at least twice verdict.min_requests")


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """What is worth waking somebody for."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    acceptance_rate: float = 0.4
    """Alarm below this acceptance rate. It usually means a draft that does not fit its target; it never routes."""
    min_requests: int = 20
    """Requests (or, from counters, ten times as many verification steps) before an acceptance alarm may sound."""
    first_position_rate: float = 0.05
    """First-position acceptance at or below this is chance: draft and target do not share a tokenizer."""
    stale_scrape_seconds: float = 60.0
    """Age of the last good ``/metrics`` reading that counts as stale, once there was one."""
    predictor_within_2x: float = 0.5
    """Alarm when fewer than this share of output predictions hit within a factor of two (good: 0.75 and more)."""

    def __post_init__(self) -> None:
        _share("alarms.acceptance_rate", self.acceptance_rate)
        _share("alarms.first_position_rate", self.first_position_rate)
        _share("alarms.predictor_within_2x", self.predictor_within_2x)
        _positive("alarms.min_requests", self.min_requests)
        _positive("alarms.stale_scrape_seconds", self.stale_scrape_seconds)


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """When the gateway says "come back later", and how often it may try again elsewhere."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    max_in_flight: int | None = None
    """Requests in flight per backend, all replicas together; None: no limit (engines queue by themselves)."""
    max_queue: int | None = None
    """Requests a backend may hold beyond the number it runs at once, where that number is known; None: no limit."""
    busy_seconds: float = 1.0
    """How long a backend that answered 429 or 503 is passed over while another one can serve."""
    retry_share: float = 0.2
    """Retries allowed per request arrived: when everything fails, retrying everything makes it worse."""
    retry_burst: int = 10
    """Retries that may happen at once after a quiet time."""
    longest_retry_after_seconds: float = 30.0
    """Upper bound of the Retry-After told to a refused client."""

    def __post_init__(self) -> None:
        _share("admission.retry_share", self.retry_share)
        if self.max_in_flight is not None:
            _positive("admission.max_in_flight", self.max_in_flight)
        if self.max_queue is not None and self.max_queue < 0:
            raise ValueError(f"admission.max_queue cannot be negative, not {self.max_queue}")
        if self.retry_burst < 0:
            raise ValueError(f"admission.retry_burst cannot be negative, not {self.retry_burst}")
        _positive("admission.longest_retry_after_seconds", self.longest_retry_after_seconds)


@dataclass(frozen=True, slots=True)
class PredictorSettings:
    """Output length and input size."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    max_keys: int = 10_000
    """Histograms kept; the least recently taught leave first. About 15 MB when full."""
    min_samples: float = 5.0
    """Weight, in answers, of the next more general key in what a key says: fewer own answers, and that one speaks."""
    decay: float = 0.99
    """Forgetting per answer of the same key (0.99–0.995 equals an exact window of 100–200 answers)."""
    default_output_tokens: float = 256.0
    """Said while nothing is known at all."""
    default_bytes_per_token: float = 4.0
    """First guess for text; corrected by the first ``usage`` of each key."""
    media_tokens: float = 600.0
    """First guess for one image, sound or file part; corrected likewise."""

    def __post_init__(self) -> None:
        _positive("predictor.max_keys", self.max_keys)
        if not 0.5 <= self.decay < 1.0:
            raise ValueError(f"predictor.decay must lie between 0.5 and 1, not {self.decay}")
        for name in ("min_samples", "default_output_tokens", "default_bytes_per_token", "media_tokens"):
            _positive(f"predictor.{name}", getattr(self, name))


@dataclass(frozen=True, slots=True)
class PrefixSettings:
    """The memory of which backend has which prompt prefix in its cache."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    max_entries: int = 50_000
    """Fingerprints kept; the oldest leave first."""
    keep_seconds: float = 900.0
    """Age at which a prefix counts as evicted from the engine's cache."""

    def __post_init__(self) -> None:
        _positive("prefixes.max_entries", self.max_entries)
        _positive("prefixes.keep_seconds", self.keep_seconds)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """How requests are judged. The defaults are meant to be left alone."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    name: PolicyName = "break-even"
    """``break-even`` weighs what a request gains from speculation against what it costs; ``fixed-ratio`` compares with a
    constant; the others are baselines."""
    price_weight: float = 1.0
    """Weight w of the delay a request causes to the others. Modelled mean regret: w=1 +1.3 %, 0.5 +1.6 %, 2 +2.8 %,
    0 (selfish) +21 %."""
    cold_requests: int = 10
    """Finished requests a backend needs before its learnt speed is trusted; until then the fewest in flight wins, which
    bounds the regret of knowing nothing at about +16 %."""
    explore_share: float = 0.01
    """Share of requests that try a near tie, so that estimates of unused backends do not rot."""
    explore_reach: float = 1.5
    """A near tie costs at most this many times the best."""
    stickiness: float = 0.05
    """A session stays on the backend of its last turn when that is at most this much dearer than the best."""
    lane_rules: dict[str, Lane] = field(default_factory=lambda: dict(LANE_RULES))
    """Feature → lane, applied before any cost: what engines refuse or get wrong while they speculate. Features are those
    of ``Arrived.features``. A rule gives way when no backend of its lane is left."""
    fixed_ratio: FixedRatioSettings = field(default_factory=FixedRatioSettings)
    """The policy ``fixed-ratio``."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    """Resting of failing backends."""
    stall: StallSettings = field(default_factory=StallSettings)
    """Detection of hung backends."""
    verdict: VerdictSettings = field(default_factory=VerdictSettings)
    """When speculation counts as paying."""
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    """Thresholds of the alarms."""
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    """Limits and retries."""
    predictor: PredictorSettings = field(default_factory=PredictorSettings)
    """Output and input prediction."""
    prefixes: PrefixSettings = field(default_factory=PrefixSettings)
    """Prefix memory."""
    lessons_per_second: float = 20.0
    """Finished requests of one class on one backend that teach, per second and in the mean. Those that end together saw the
    same moment: the learners, whose memory is 100 requests, would forget everything else within it. 0 lets all teach."""
    max_requests: int = 100_000
    """Live requests remembered at most; beyond it the oldest are forgotten (their counts are released)."""
    silent_seconds: float = 300.0
    """A healthy backend without any finished request for this long is reported as silent: worth one synthetic probe."""

    def __post_init__(self) -> None:
        if self.price_weight < 0:
            raise ValueError(f"price_weight cannot be negative, not {self.price_weight}")
        if self.cold_requests < 0:
            raise ValueError(f"cold_requests cannot be negative, not {self.cold_requests}")
        _share("explore_share", self.explore_share)
        if self.explore_reach < 1:
            raise ValueError(f"explore_reach must be at least 1, not {self.explore_reach}")
        if self.stickiness < 0:
            raise ValueError(f"stickiness cannot be negative, not {self.stickiness}")
        if self.lessons_per_second < 0:
            raise ValueError(f"lessons_per_second cannot be negative, not {self.lessons_per_second}")
        _positive("max_requests", self.max_requests)
        for feature, lane in self.lane_rules.items():
            if lane not in (SPECULATIVE, PLAIN):
                raise ValueError(f"lane_rules.{feature}: a lane is {SPECULATIVE!r} or {PLAIN!r}, not {lane!r}")
