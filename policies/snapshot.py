"""Everything worth showing, as plain data: for ``/admin/state``, ``/metrics`` and the dashboard.

Only dicts, lists, strings, numbers, booleans and None, so that it goes to JSON as it is. Not for the request path:
it walks everything.
"""

from typing import Any

from policies.acceptance import Acceptance
from policies.alarms import acceptance_of, alarms
from policies.backend import Backend
from policies.break_even import break_even_tokens, score
from policies.decide import candidates_for
from policies.decision import NEVER
from policies.events import Arrived
from policies.fleet import Fleet, assess
from policies.gain import ClassGain

TOP = 20


def snapshot(fleet: Fleet, now: float) -> dict[str, Any]:
    """The state at ``now``."""
    report = fleet.lengths.report()
    return {
        "at": now,
        "policy": fleet.settings.name,
        "requests_in_flight": len(fleet.live),
        "backends": [_backend(fleet, backend, now) for backend in fleet.backends.values()],
        "break_even": {model: _model_border(fleet, model, now) for model in _models(fleet)},
        "verdicts": [_verdict(fleet, name, known, now) for name, known in fleet.verdicts.classes.items()],
        "alarms": [alarm._asdict() for alarm in alarms(fleet, now)],
        "predictor": report._asdict() | {"keys": len(fleet.lengths.histograms)},
        "applications": [_application(name, fleet) for name, _ in fleet.applications.top(TOP)],
        "memory": {
            "prefixes": len(fleet.prefixes.seen),
            "prompts": len(fleet.prompts) + len(fleet.earlier_prompts),
            "outbox": len(fleet.outbox),
        },
        "peers": sorted({name for backend in fleet.backends.values() for name in backend.peers} | set(fleet.heard)),
        "retries_left": fleet.retries,
    }


def _acceptance(seen: Acceptance) -> dict[str, Any]:
    return seen._asdict()


def _backend(fleet: Fleet, backend: Backend, now: float) -> dict[str, Any]:
    speed = backend.speed
    return {
        "name": backend.name,
        "lane": backend.lane,
        "models": list(backend.models),
        "engine": backend.engine,
        "depth": backend.depth,
        "state": state_of(backend, now),
        "in_flight": backend.in_flight,
        "own_in_flight": backend.own_in_flight,
        "waiting_prompt_tokens": backend.waiting_tokens,
        "prefilled_tokens": backend.prefilled,
        "engine_queue": backend.waiting,
        "capacity": backend.capacity or None,
        "finished": backend.finished,
        "warm": backend.warm,
        "step_base_seconds": speed.base,
        "step_seconds_per_request": speed.slope,
        "prefill_seconds_per_token": speed.prefill,
        "first_token_base_seconds": speed.start,
        "step_factor": speed.factor(),
        "tokens_per_step": backend.yields.base,
        "draft_tokens_per_step": backend.yields.drafted,
        "acceptance": _acceptance(acceptance_of(backend)),
        "acceptance_counters": _acceptance(backend.counters.acceptance()),
        "acceptance_by_class": {
            name: _acceptance(tally.acceptance()) for name, tally in list(backend.yields.by_class.items())[-TOP:]
        },
        "cache_trust": backend.cache_trust,
        "refuses": sorted(backend.refuses),
        "seconds_since_finish": now - backend.finished_at,
    }


def state_of(backend: Backend, now: float) -> str:
    """``draining``, ``open``, ``half-open``, ``stalled``, ``busy``, ``cold`` or ``serving``."""
    if backend.draining:
        return "draining"
    if backend.breaker.state != "closed":
        return backend.breaker.state
    if backend.stalled:
        return "stalled"
    if backend.busy_until > now:
        return "busy"
    return "serving" if backend.warm else "cold"


def _models(fleet: Fleet) -> list[str]:
    return sorted({model for backend in fleet.backends.values() for model in backend.models})


def _model_border(fleet: Fleet, model: str, now: float) -> dict[str, Any]:
    """The break-even ratio for a typical request of a model: its mean input, no class known, nothing cached."""
    tokens = _typical_input(fleet)
    asked = Arrived(now, "", model, "", "chat", int(tokens * 4), prompt_tokens=int(tokens))
    live = assess(fleet, asked)
    scored = score(fleet, live, candidates_for(fleet, model))
    scored.sort(key=lambda pair: pair[0])
    warm = bool(scored) and all(backend.warm for _, backend in scored)
    border = break_even_tokens(fleet, live, scored) if warm else None
    ratio = border if border is None or border >= NEVER else border / live.input_tokens
    return {"ratio": ratio, "input_tokens": live.input_tokens, "output_tokens": border}


def _typical_input(fleet: Fleet) -> float:
    weight = sum(application.weight for application in fleet.applications.by_name.values())
    total = sum(application.input_tokens for application in fleet.applications.by_name.values())
    return max(1.0, total / weight) if weight > 0 else 500.0


def _verdict(fleet: Fleet, name: str, known: ClassGain, now: float) -> dict[str, Any]:
    model, application, content, band = name.rsplit("|", 3)
    gain = known.gain(fleet.settings.verdict.confidence_z)
    return {
        "class": name,
        "model": model,
        "application": application,
        "content": content,
        "temperature": band,
        "verdict": known.state,
        "seconds": now - known.since,
        "changes": known.changes,
        **gain._asdict(),
    }


def _application(name: str, fleet: Fleet) -> dict[str, Any]:
    known = fleet.applications.by_name[name]
    return {
        "name": name,
        "requests": known.requests,
        "speculative_requests": known.speculative,
        "mean_input_tokens": known.input_tokens / known.weight if known.weight else None,
        "mean_output_tokens": known.output_tokens / known.weight if known.weight else None,
        "seconds_per_token": dict(sorted(known.token_seconds.items())),
        "acceptance": _acceptance(known.acceptance()),
    }
