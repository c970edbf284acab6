"""The farewell: what is counted and logged of a request, made once, when everything is over."""

from policies.decision import SPECULATIVE
from policies.events import Cancelled, Failed, Finished
from proxy.errors import GatewayError
from proxy.outcome import BACKEND_ERROR, CANCELLED, CLIENT_ERROR, OK, REJECTED, Outcome
from proxy.relay import Relay
from proxy.surfaces.base import Facts
from proxy.wire.inbound import Inbound

Ended = Finished | Failed | Cancelled


def told(relay: Relay, ended: Ended, known: bool, now: float) -> Outcome:
    """The outcome of a request that was sent to a backend."""
    decision = relay.decision
    assert decision is not None
    facts = relay.facts()
    first = relay.first_token_at
    return Outcome(
        id=relay.id,
        surface=relay.surface.name,
        model=relay.arrived.model,
        model_known=known,
        app=relay.passport.app,
        lane=decision.lane,
        workload=decision.workload,
        backend=decision.backend,
        status=relay.answered_status,
        outcome=_how(relay, ended),
        latency_seconds=now - relay.began_at,
        own_seconds=relay.own_seconds,
        ttft_seconds=None if first is None else first - relay.began_at,
        tpot_seconds=_tpot(first, now, facts, ended),
        stream=relay.asked.stream,
        fault=ended.fault if isinstance(ended, Failed) else None,
        reason=decision.reason,
        policy=decision.policy,
        ratio=decision.ratio,
        break_even=decision.break_even,
        input_tokens=decision.input_tokens,
        prompt_tokens=facts.prompt_tokens,
        cached_tokens=facts.cached_tokens,
        predicted_tokens=decision.output_tokens,
        output_from=decision.output_from,
        completion_tokens=facts.completion_tokens,
        tokens_per_step=_tokens_per_step(relay, facts),
        draft_tokens=facts.draft_tokens,
        accepted_tokens=facts.accepted_tokens,
        retries=relay.attempts - 1 - relay.requeues,
        requeues=relay.requeues,
    )


def turned_down(relay: Relay, error: GatewayError, now: float) -> Outcome:
    """The outcome of a request whose body was read and that no backend saw."""
    return _unrouted(relay.id, relay.surface.name, relay.passport.app, error, now - relay.began_at)


def turned_away(inbound: Inbound, error: GatewayError) -> Outcome:
    """The outcome of a request refused at the door."""
    passport = inbound.passport
    return _unrouted("" if passport is None else passport.id, inbound.surface.name, "unnamed", error, 0.0)


def _unrouted(name: str, surface: str, app: str, error: GatewayError, seconds: float) -> Outcome:
    return Outcome(
        id=name,
        surface=surface,
        model="",
        model_known=False,
        app=app,
        lane="",
        workload="",
        backend="",
        status=error.status,
        outcome=REJECTED,
        latency_seconds=seconds,
        fault=error.kind,
    )


def _how(relay: Relay, ended: Ended) -> str:
    if isinstance(ended, Cancelled):
        return CANCELLED
    if isinstance(ended, Failed):
        return BACKEND_ERROR
    return CLIENT_ERROR if relay.status >= 400 else OK


def _tpot(first: float | None, now: float, facts: Facts, ended: Ended) -> float | None:
    tokens = facts.completion_tokens
    if first is None or tokens is None or tokens < 2 or not isinstance(ended, Finished):
        return None
    return (now - first) / (tokens - 1)


def _tokens_per_step(relay: Relay, facts: Facts) -> float | None:
    steps = facts.steps or _events_as_steps(relay, facts)
    return facts.completion_tokens / steps if steps and facts.completion_tokens is not None else None


def _events_as_steps(relay: Relay, facts: Facts) -> int | None:
    """vLLM tells steps only where a flag is set, but streams one event for each, and one for the prefill's token."""
    backend = relay.backend
    if backend is None or backend.lane != SPECULATIVE or not relay.asked.stream or relay.asked.n > 1:
        return None
    return facts.events - 1 if backend.engine.one_event_per_step else None
