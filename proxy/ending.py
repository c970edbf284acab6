"""The farewell: what is counted and logged of a request, made once, when everything is over."""

from policies.decision import SPECULATIVE
from policies.events import Cancelled, Failed, Finished
from policies.make import make
from proxy.errors import GatewayError
from proxy.outcome import BACKEND_ERROR, CANCELLED, CLIENT_ERROR, OK, REJECTED, Outcome
from proxy.relay import Relay
from proxy.surfaces.base import Facts
from proxy.wire.inbound import Inbound

Ended = Finished | Failed | Cancelled


def end_of(relay: Relay) -> Finished | Failed:
    """What became of a request whose answer is complete."""
    backend, answer = relay.backend, relay.answer_head
    assert backend is not None
    if answer is not None and answer.fault is not None:
        return Failed(relay.heard_at, relay.id, backend.name, answer.fault, relay.status)
    facts = relay.facts()
    return make(
        Finished,
        relay.heard_at,
        relay.id,
        relay.status,
        facts.prompt_tokens,
        facts.cached_tokens,
        facts.completion_tokens,
        facts.reasoning_tokens,
        facts.finish_reason,
        facts.events,
        facts.steps,
        facts.draft_tokens,
        facts.accepted_tokens,
        facts.accepted_per_position,
        facts.output_repeats,
    )


def told(relay: Relay, ended: Ended, known: bool) -> Outcome:
    """The outcome of a request that was sent to a backend."""
    decision = relay.decision
    assert decision is not None
    facts = relay.facts()
    return Outcome(
        relay.id,
        relay.surface.name,
        relay.arrived.model,
        relay.passport.app,
        relay.answered_status,
        _how(relay, ended),
        _micro(ended.at - relay.began_at) or 0.0,
        decision.lane,
        decision.workload,
        decision.backend,
        _micro(relay.own_seconds),
        None if relay.first_token_at is None else _micro(relay.first_token_at - relay.began_at),
        _tpot(relay, facts, ended),
        relay.asked.stream,
        ended.fault if isinstance(ended, Failed) else None,
        decision.reason,
        decision.policy,
        _micro(decision.ratio),
        _micro(decision.break_even),
        _micro(decision.input_tokens),
        facts.prompt_tokens,
        facts.cached_tokens,
        _micro(decision.output_tokens),
        decision.output_from,
        facts.completion_tokens,
        _tokens_per_step(relay, facts),
        facts.draft_tokens,
        facts.accepted_tokens,
        _micro((facts.accepted_tokens or 0) / facts.draft_tokens) if facts.draft_tokens else None,
        relay.attempts - 1 - relay.requeues,
        relay.requeues,
        known,
    )


def turned_down(relay: Relay, error: GatewayError, now: float) -> Outcome:
    """The outcome of a request that we turned down after its body was read."""
    return _unrouted(relay.id, relay.surface.name, relay.passport.app, error, now - relay.began_at)


def turned_away(inbound: Inbound, error: GatewayError) -> Outcome:
    """The outcome of a request refused at the door."""
    return _unrouted(inbound.id, inbound.surface.name, "unnamed", error, 0.0)


def _unrouted(name: str, surface: str, app: str, error: GatewayError, seconds: float) -> Outcome:
    return Outcome(name, surface, "", app, error.status, REJECTED, seconds, fault=error.kind, model_known=False)


def _how(relay: Relay, ended: Ended) -> str:
    if isinstance(ended, Cancelled):
        return CANCELLED
    if isinstance(ended, Failed):
        return BACKEND_ERROR
    return CLIENT_ERROR if relay.status >= 400 else OK


def _tpot(relay: Relay, facts: Facts, ended: Ended) -> float | None:
    first, tokens = relay.first_token_at, facts.completion_tokens
    if first is None or tokens is None or tokens < 2 or not isinstance(ended, Finished):
        return None
    return _micro((ended.at - first) / (tokens - 1))


def _tokens_per_step(relay: Relay, facts: Facts) -> float | None:
    steps = facts.steps or _events_as_steps(relay, facts)
    return _micro(facts.completion_tokens / steps) if steps and facts.completion_tokens is not None else None


def _events_as_steps(relay: Relay, facts: Facts) -> int | None:
    """vLLM tells steps only where a flag is set, but streams one event for each, and one for the prefill's token."""
    backend = relay.backend
    if backend is None or backend.lane != SPECULATIVE or not relay.asked.stream or relay.asked.n > 1:
        return None
    return facts.events - 1 if backend.engine.one_event_per_step else None


def _micro(value: float | None) -> float | None:
    """Rounded to six decimals, in a third of the time that ``round`` takes."""
    return None if value is None else int(value * 1e6 + 0.5) / 1e6
