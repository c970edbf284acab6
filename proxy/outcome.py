"""How a request ended, as one value: what the metrics count and the log tells."""

from typing import NamedTuple

LONGEST_NAME = 200
"""Characters of a name that a client made up (model, application) which leave the gateway."""

OK = "ok"
CLIENT_ERROR = "client_error"
BACKEND_ERROR = "backend_error"
CANCELLED = "cancelled"
REJECTED = "rejected"


class Outcome(NamedTuple):
    """Made once per request, when everything is over. ``None`` means not known or not applicable, "" not routed."""

    id: str
    surface: str
    model: str
    """After aliases."""
    model_known: bool
    """False keeps a name that only a client ever said out of the labels."""
    app: str
    lane: str
    """``speculative``, ``plain``, or "" when no backend was chosen."""
    workload: str
    """``decode-heavy``, ``prompt-heavy``, or ""."""
    backend: str
    status: int
    """What the client got; 0 when it left before there was one."""
    outcome: str
    """``ok``, ``client_error`` (its 4xx), ``backend_error``, ``cancelled`` (the client left), ``rejected`` (by us)."""
    latency_seconds: float
    """First byte of the request to last byte of the answer."""
    own_seconds: float | None = None
    """Of that, what the gateway itself added before the request went out."""
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
    retries: int = 0
    """Attempts after the first one that followed a failure."""
    requeues: int = 0
    """Times it was taken from a stalled backend."""


_NAMES = tuple("class" if name == "workload" else name for name in Outcome._fields)


def plain(told: Outcome) -> dict[str, object]:
    """What is known, under the names that the log and ``/admin/state`` use; safe to show, whatever a client sent."""
    said: dict[str, object] = {}
    for name, value in zip(_NAMES, told, strict=True):
        if value is None or value == "" or name == "model_known":
            continue
        if isinstance(value, float):
            said[name] = float(f"{value:.6g}")
        else:
            said[name] = short(value) if isinstance(value, str) else value
    if told.draft_tokens:
        said["acceptance"] = round((told.accepted_tokens or 0) / told.draft_tokens, 4)
    return said


def short(name: str) -> str:
    """A name of a client's making, cut, and without what is no character."""
    if name.isascii() and len(name) <= LONGEST_NAME:
        return name
    return name[:LONGEST_NAME].encode(errors="replace").decode()
