"""What can happen, said in the past tense.

Every fact that may change a decision is one of these values. They are named tuples because one is
built per request on the hot path (0.4 µs against 1.6 µs for a frozen dataclass, measured on
CPython 3.11), because they are immutable, and because they serialise to JSON arrays without help.
New fields go to the end, with a default, so that journals written before stay readable.

Units: ``*_seconds`` and ``at`` are seconds (``at`` counts from the Unix epoch but never runs
backwards within one process), ``*_tokens`` tokens, ``*_bytes`` UTF-8 bytes. ``None`` always means
"not known"; zero is a measurement.
"""

from typing import Final, NamedTuple

SYNTHETIC: Final = "synthetic"
"""``Arrived.surface`` of requests the gateway made itself to hear from a silent backend; nobody decided where they go."""


class Arrived(NamedTuple):
    """A client asked. Holds everything the judgement may use of a request, and none of its text."""

    at: float
    id: str
    model: str
    """Model name after aliases."""
    app: str
    """Application: the API key's name, the ``x-draftlane-app`` header, both with a slash between, or the user agent's family."""
    surface: str
    """``chat``, ``completions``, ``responses``, ``messages`` …"""
    prompt_bytes: int
    """Bytes of text the model has to read, JSON dressing excluded as far as is cheap."""
    prompt_tokens: int | None = None
    """Exact count where it is known (token ids in the body, tokenizer at hand)."""
    media: int = 0
    """Image, audio and file parts; each costs tokens that no byte count tells."""
    cap: int | None = None
    """``max_tokens`` / ``max_completion_tokens`` / ``max_output_tokens``."""
    n: int = 1
    """Parallel answers asked for."""
    stream: bool = False
    temperature: float | None = None
    features: tuple[str, ...] = ()
    """Sorted names of what lane rules and predictor keys look at: ``min_p``, ``logit_bias``, ``tools``,
    ``tool_choice``, ``json_schema``, ``json_object``, ``grammar``, ``logprobs``, ``n``, ``stop``, ``prediction``,
    ``reasoning:high``, ``last:tool`` …"""
    content: str = "text"
    """Kind of content, guessed from the prompt: ``code-edit``, ``code``, ``json``, ``tools``, ``long-input``, ``text``."""
    system: int = 0
    """Fingerprint of the system prompt (and tool names), 0 for none."""
    fingerprint: int = 0
    """Fingerprint of the prompt: two equal ones count as a repeated prompt."""
    prefixes: tuple[tuple[int, int], ...] = ()
    """Rolling (fingerprint, prompt bytes so far) at message borders, shortest first."""
    forced_lane: str | None = None
    expected_output_tokens: int | None = None
    """The client's own word (``x-draftlane-expected-output-tokens``)."""
    draw: float = 1.0
    """A uniform draw in [0, 1): explore when it is small."""
    choice: float = 0.0
    """A second uniform draw: which one to explore."""
    excluded: tuple[str, ...] = ()
    """Backends that already failed this very request (a re-queued request asks again)."""
    after: str = ""
    """The fault for which it asks again, of ``FAULTS``."""


class Dispatched(NamedTuple):
    """The request was sent to a backend. A retry or a re-queue dispatches the same id again."""

    at: float
    id: str
    backend: str


class FirstToken(NamedTuple):
    """The first generated token of a request was seen (not the head, not a role-only chunk)."""

    at: float
    id: str


class Finished(NamedTuple):
    """A request ended well on its backend."""

    at: float
    id: str
    status: int = 200
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    events: int = 0
    """Content-bearing stream events: one engine step each on vLLM, one token each on llama.cpp."""
    steps: int | None = None
    """Verification steps the engine itself reported for this request."""
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_per_position: tuple[int, ...] = ()
    output_repeats: bool = False
    """The answer copies text emitted before (it must not teach other classes)."""


class Failed(NamedTuple):
    """A backend did not do its part. ``fault`` is one of ``FAULTS``; a client's 4xx is a Finished, never this."""

    at: float
    id: str
    backend: str
    fault: str
    status: int | None = None
    final: bool = True
    """False when the request goes on elsewhere (a retry or a re-queue follows)."""


FAULTS: Final = (
    "connect",  # refused, unreachable, DNS, TLS
    "connect-timeout",
    "closed",  # closed or reset before the head
    "garbage",  # not HTTP
    "head-timeout",  # no head or no first byte in time
    "idle-timeout",  # silence in mid-answer
    "truncated",  # ended early: lengths or chunks incomplete
    "status",  # 5xx from the backend
    "busy",  # 429 or 503 from the backend: load, not illness
    "stalled",  # the watchdog moved the request away
    "refused",  # 400 because its lane speculates; the request moved, and nothing is wrong with the backend
)


class Cancelled(NamedTuple):
    """The client left. Censored evidence: the output would have had *at least* this many tokens."""

    at: float
    id: str
    events: int = 0
    completion_tokens: int | None = None


class Refused(NamedTuple):
    """A backend answered 400 because of a feature its lane cannot serve (vLLM: min_p with speculation)."""

    at: float
    id: str
    backend: str
    feature: str


class Joined(NamedTuple):
    """A backend is part of the fleet, with what configuration and discovery know of it."""

    at: float
    backend: str
    lane: str
    """``speculative`` or ``plain``."""
    models: tuple[str, ...] = ()
    engine: str = "unknown"
    depth: int | None = None
    """Draft tokens per step, k; 0 on a plain backend, None when unknown."""
    max_context_tokens: int | None = None
    max_requests: int | None = None
    """Requests the engine runs at once (max_num_seqs, slots)."""
    refuses: tuple[str, ...] = ()
    """Features this backend refuses or mis-serves."""
    drafts_always: bool = True
    """False for n-gram methods, which draft only when they find a match."""
    one_event_per_step: bool = False
    """Each content-bearing stream event carries what one engine step produced (vLLM), so events count steps."""
    draining: bool = False
    """It finishes what it has and gets nothing new."""


class Left(NamedTuple):
    """A backend was taken out of the fleet."""

    at: float
    backend: str


class Probed(NamedTuple):
    """A health check of a backend ended."""

    at: float
    backend: str
    ok: bool


class Pulse(NamedTuple):
    """Several times a second for a backend with requests in flight: when its last bytes came."""

    at: float
    backend: str
    heard_at: float
    longest_gap_seconds: float
    """Longest silence between two reads of one stream since the last pulse."""
    streams: int | None = None
    """Streams in flight."""
    flowing: int | None = None
    """Of them, streams past their first token."""


class Scraped(NamedTuple):
    """A backend's ``/metrics`` page was read. Counters are totals since the engine's start, never deltas."""

    at: float
    backend: str
    running: int | None = None
    waiting: int | None = None
    cache_usage: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    generated_tokens: float | None = None
    acceptance_length: float | None = None
    """A gauge some engines offer instead of counters (SGLang), bonus token included."""


class PeerLoad(NamedTuple):
    """Another replica told what it has in flight on a backend. ``sequence`` grows; older ones are ignored."""

    at: float
    replica: str
    sequence: int
    backend: str
    in_flight: int
    waiting_prompt_tokens: float
    """Prompt tokens of its requests that have no first token yet."""
    prefilled_tokens: float
    """Prompt tokens it has seen prefilled on this backend since it started."""


class PeerLearnt(NamedTuple):
    """Another replica finished a request; the facts the learners need, ready to be folded in once."""

    at: float
    replica: str
    sequence: int
    facts: tuple[str | float | int | bool | None, ...]
    """The fields of ``policies.fleet.Lesson`` in their order."""


class PeerLost(NamedTuple):
    """Nothing was heard of a replica for so long that its load counts are forgotten."""

    at: float
    replica: str


Event = (
    Arrived
    | Dispatched
    | FirstToken
    | Finished
    | Failed
    | Cancelled
    | Refused
    | Joined
    | Left
    | Probed
    | Pulse
    | Scraped
    | PeerLoad
    | PeerLearnt
    | PeerLost
)
