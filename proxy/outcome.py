"""How a request ended, as one value: what the metrics count and the log tells."""

import msgspec

OK = "ok"
CLIENT_ERROR = "client_error"
BACKEND_ERROR = "backend_error"
CANCELLED = "cancelled"
REJECTED = "rejected"


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename={"workload": "class"}):
    """Made once per request, when everything is over. ``None`` means not known or not applicable, "" not routed.

    A struct and no named tuple, because the log encodes it as it is: only what differs from its default is said.
    """

    id: str
    surface: str
    model: str
    """After aliases."""
    app: str
    status: int
    """What the client got; 0 when it left before there was one."""
    outcome: str
    """``ok``, ``client_error`` (its 4xx), ``backend_error``, ``cancelled`` (the client left), ``rejected`` (by us)."""
    latency_seconds: float
    """First byte of the request to last byte of the answer."""
    lane: str = ""
    """``speculative``, ``plain``, or "" when no backend was chosen."""
    workload: str = ""
    """``decode-heavy``, ``prompt-heavy``, or ""."""
    backend: str = ""
    own_seconds: float | None = None
    """Of the latency, what the gateway itself added before the request went out."""
    ttft_seconds: float | None = None
    """First byte of the request to the first generated token."""
    tpot_seconds: float | None = None
    """(End − first token) ÷ (output tokens − 1)."""
    stream: bool = False
    fault: str | None = None
    """``policies.events.FAULTS``, or the ``proxy.errors`` kind of a rejection."""
    reason: str = ""
    """``Decision.reason``."""
    policy: str = ""
    ratio: float | None = None
    break_even: float | None = None
    input_tokens: float | None = None
    """Estimated."""
    prompt_tokens: int | None = None
    """Real."""
    cached_tokens: int | None = None
    predicted_tokens: float | None = None
    output_from: str = ""
    """Which predictor level answered."""
    completion_tokens: int | None = None
    """Real."""
    tokens_per_step: float | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    acceptance: float | None = None
    """Accepted ÷ drafted tokens."""
    retries: int = 0
    """Attempts after the first one that followed a failure."""
    requeues: int = 0
    """Times it was taken from a stalled backend."""
    model_known: bool = True
    """False keeps a name that only a client ever said out of the labels."""
