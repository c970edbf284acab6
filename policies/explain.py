"""A decision in sentences a tired operator understands, one per step."""

from collections.abc import Callable

from policies.decision import DECODE_HEAVY, NEVER, Decision, NoBackend, Overloaded, Verdict
from policies.fleet import Fleet

_NO_BACKEND = {
    "unknown-model": "No backend serves this model.",
    "none-healthy": "Every backend that serves this model has failed this request, is draining or is gone.",
    "too-long": "The prompt is longer than the context of every backend that serves this model.",
}

_WHY: dict[str, Callable[[Decision], str]] = {
    "only-backend": lambda d: f"{d.backend} is the only backend that can take it, so there was nothing to weigh.",
    "cold-start": lambda d: (
        f"Not every backend is known well enough yet, so the one with the fewest requests in flight got it: {d.backend}."
    ),
    "forced": lambda d: f"The client asked for the {d.lane} lane by header; within it {d.backend} came first.",
    "break-even": lambda d: f"{d.backend} costs least, the delay of the others included.",
    "does-not-pay": lambda d: (
        f"Speculation was measured not to pay for this class, so speculative backends had to be clearly cheaper; {d.backend} won."
    ),
    "sticky": lambda d: f"The session's last turn ran on {d.backend} and no other is clearly cheaper, so it stays.",
    "explore": lambda d: f"{d.backend} is a near tie and was tried so that its estimates stay fresh.",
    "probe": lambda d: (
        f"The {d.lane} lane has not shown lately what it does with this class, so this request probes it on {d.backend}."
    ),
    "spill": lambda d: f"Its own lane is too crowded, so it spilled over to {d.backend}.",
    "fixed-ratio": lambda d: (
        f"By the fixed ratio it belongs to the {d.lane} lane; {d.backend} has the fewest requests in flight there."
    ),
    "other-lane": lambda d: f"Its own lane has no backend that can take it, so {d.backend} got it.",
    "least-load": lambda d: f"{d.backend} has the fewest requests in flight.",
    "round-robin": lambda d: f"It was the turn of {d.backend}.",
}

_AFTER = {
    "refused": "its lane refuses a feature of the request",
    "stalled": "it hung, and the client had seen nothing yet",
    "busy": "it answered that it is busy",
    "status": "it answered with a server error",
}


def explain(verdict: Verdict, fleet: Fleet | None = None) -> list[str]:
    """Sentences in the order of the steps: size, prediction, class, costs, reason, what comes next if it fails.

    With the ``fleet`` of that moment the learnt figures of the chosen backend are told too.
    """
    if isinstance(verdict, NoBackend):
        return [f"Request {verdict.id} asked for {verdict.model}.", _NO_BACKEND.get(verdict.cause, verdict.cause)]
    if isinstance(verdict, Overloaded):
        return [
            f"Request {verdict.id} asked for {verdict.model}.",
            f"Every backend is at its limit; a place is likely to be free in {verdict.retry_after_seconds:.0f} s.",
        ]
    told = [_size(verdict), _prediction(verdict), _class(verdict)]
    if verdict.costs:
        told.append(_costs(verdict))
    told.append(_why(verdict))
    if fleet is not None:
        told += _learnt(verdict, fleet)
    if verdict.alternates:
        told.append(f"Should it fail there: {', '.join(verdict.alternates)}.")
    return told


def _size(decision: Decision) -> str:
    size = f"The prompt has about {decision.input_tokens:,.0f} tokens"
    cached = decision.input_tokens - decision.uncached_tokens
    return f"{size}, of which {decision.backend} probably has {cached:,.0f} cached." if cached >= 1 else f"{size}."


def _prediction(decision: Decision) -> str:
    tokens = f"About {decision.output_tokens:,.0f} output tokens are expected"
    if decision.output_from == "default":
        return f"{tokens}; nothing like it was seen before, so this is a default."
    if decision.output_from == "client":
        return f"{tokens}, on the client's own word."
    return f"{tokens}, from the history of {decision.output_from}."


def _class(decision: Decision) -> str:
    ratio = f"That is {decision.ratio:.3g} output tokens per uncached input token"
    if decision.break_even is None:
        return f"{ratio}; it counts as {decision.workload} by the fixed threshold, as no break-even ratio is known."
    if decision.break_even >= NEVER:
        return f"{ratio}; at this moment speculation would not pay at any output length: {decision.workload}."
    side = "above" if decision.workload == DECODE_HEAVY else "not above"
    return f"{ratio}, {side} the break-even ratio of this moment ({decision.break_even:.3g}): {decision.workload}."


def _costs(decision: Decision) -> str:
    listed = ", ".join(f"{name} {cost:.3g} s" for name, cost in decision.costs)
    return f"Costs: {listed}."


def _why(decision: Decision) -> str:
    if decision.reason.startswith("after:"):
        fault = decision.reason.removeprefix("after:")
        return f"Another backend had it before ({_AFTER.get(fault, fault)}), so it was asked again: {decision.backend} came first."
    if decision.reason.startswith("lane-rule:"):
        feature = decision.reason.partition(":")[2]
        return f"It uses {feature}, which not every backend serves well, so only suitable ones were left: {decision.backend}."
    if decision.reason.startswith("all-"):
        return f"The policy sends everything to the {decision.reason[4:]} lane while it can: {decision.backend}."
    say = _WHY.get(decision.reason)
    return say(decision) if say is not None else f"{decision.reason}: {decision.backend}."


def _learnt(decision: Decision, fleet: Fleet) -> list[str]:
    backend = fleet.backends.get(decision.backend)
    if backend is None:
        return []
    speed = backend.speed
    told = (
        f"Of {decision.backend} is known, from {speed.completions} requests: a step takes"
        f" {1000 * speed.base:.3g} ms + {1000 * speed.slope:.3g} ms per request in flight ({backend.in_flight} now),"
        f" a thousand prompt tokens {1000 * speed.prefill:.3g} s"
    )
    if not backend.speculative:
        return [told + "."]
    return [f"{told}; a step yields about {backend.yields.base:.2f} tokens."]
