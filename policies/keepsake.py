"""What a restarted gateway need not learn again, as plain data (JSON-able) and back.

Kept: speeds, tokens per step, output-length and input histories, verdicts, applications. Not kept: anything about
requests under way, breakers, loads and prompt prefixes, which a restart makes untrue. A journal that starts from a
restored state must hold that state, or its replay cannot be equal.
"""

from typing import Any, Final, TypeVar

from policies.acceptance import Tally
from policies.backend import Backend
from policies.change import PageHinkley
from policies.fleet import Fleet, take_stock
from policies.gain import ClassGain, Sample
from policies.inputs import Factor
from policies.lengths import Histogram
from policies.teach import prove

VERSION: Final = 2
SUMS: Final[dict[type[Any], tuple[str, ...]]] = {
    Factor: ("bytes", "cached", "cached_of", "media", "media_tokens", "tokens"),
    PageHinkley: ("down", "last", "mean", "scale", "seen", "spread", "up"),
    Tally: ("accepted", "draft_tokens", "effort", "first", "first_drafts", "inverse", "requests", "steps", "weight"),
}
"""All that these hold, in the order of the file. Written down, since compiled classes cannot list their slots."""
Thing = TypeVar("Thing")


def keep(fleet: Fleet) -> dict[str, Any]:
    """Everything worth keeping."""
    return {
        "version": VERSION,
        "backends": {name: _keep_backend(backend) for name, backend in fleet.backends.items()},
        "lengths": [[list(key), _keep_histogram(history)] for key, history in fleet.lengths.histograms.items()],
        "inputs": [
            [list(key), _sums(factor), fleet.inputs.per_byte.get(key)] for key, factor in fleet.inputs.factors.items()
        ],
        "verdicts": [[name, _keep_class(known)] for name, known in fleet.verdicts.classes.items()],
        "crowd": fleet.verdicts.crowd,
    }


def restore(fleet: Fleet, kept: dict[str, Any]) -> None:
    """Put what was kept into a fleet whose backends have joined; unknown backends are passed over.

    Raises:
        ValueError: the data is not what ``keep`` made; the fleet may then be half filled, so start with a fresh one.
    """
    if kept.get("version") != VERSION:
        raise ValueError(f"the kept state has version {kept.get('version')!r}, this draftlane reads version {VERSION}")
    try:
        _restore(fleet, kept)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as broken:
        raise ValueError(f"the kept state is damaged: {broken}") from broken


def _restore(fleet: Fleet, kept: dict[str, Any]) -> None:
    for name, data in kept["backends"].items():
        backend = fleet.backends.get(name)
        if backend is not None and backend.lane == data["lane"]:
            _restore_backend(backend, data)
            backend.settle(fleet.settings.cold_requests)
    for key, data in kept["lengths"]:
        fleet.lengths.histograms[_tuple(key)] = _histogram(data)
    fleet.lengths.relate()
    for key, sums, per_byte in kept["inputs"]:
        model, app, content = key
        fleet.inputs.factors[model, app, content] = _fill(Factor(), sums)
        if per_byte is not None:
            fleet.inputs.per_byte[model, app, content] = float(per_byte)
    for name, data in kept["verdicts"]:
        fleet.verdicts.classes[name] = _class(data)
    fleet.verdicts.crowd = float(kept["crowd"])
    for name in fleet.verdicts.classes:
        prove(fleet, name)
    take_stock(fleet)


def _sums(thing: Any) -> list[float]:
    return [getattr(thing, name) for name in SUMS[type(thing)]]


def _fill(thing: Thing, values: list[float]) -> Thing:
    for name, value in zip(SUMS[type(thing)], values, strict=True):
        setattr(thing, name, value)
    return thing


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _keep_backend(backend: Backend) -> dict[str, Any]:
    speed, yields = backend.speed, backend.yields
    return {
        "lane": backend.lane,
        "speed": speed.dump(),
        "overall": _sums(yields.overall),
        "classes": [[name, _sums(tally)] for name, tally in yields.by_class.items()],
        "factors": sorted(yields.factors.items()),
        "cache_trust": backend.cache_trust,
        "request_seconds": backend.request_seconds,
    }


def _restore_backend(backend: Backend, data: dict[str, Any]) -> None:
    yields = backend.yields
    backend.speed.load(data["speed"])
    _fill(yields.overall, data["overall"])
    for name, values in data["classes"]:
        yields.by_class[name] = _fill(Tally(), values)
    yields.factors = {name: float(factor) for name, factor in data["factors"]}
    yields.settle_all()
    backend.cache_trust = float(data["cache_trust"])
    backend.request_seconds = float(data["request_seconds"])


def _keep_histogram(history: Histogram) -> dict[str, Any]:
    return {
        "bins": sorted(history.bins.items()),
        "unit": history.unit,
        "total": history.total,
        "capped": history.capped,
        "change": None if history.change is None else _sums(history.change),
    }


def _histogram(data: dict[str, Any]) -> Histogram:
    history = Histogram(data["change"] is not None)
    history.bins = {int(place): float(weight) for place, weight in data["bins"]}
    for name in ("unit", "total", "capped"):
        setattr(history, name, float(data[name]))
    if history.change is not None:
        _fill(history.change, data["change"])
    return history


def _keep_class(known: ClassGain) -> dict[str, Any]:
    return {
        "state": known.state,
        "since": known.since,
        "since_probe": known.since_probe,
        "probed": known.probed,
        "changes": known.changes,
        "samples": {lane: _keep_sample(sample) for lane, sample in known.samples.items()},
    }


def _keep_sample(sample: Sample) -> list[Any]:
    last = sample.last_at if sample.weight else None
    return [sample.weight, sample.mean, sample.spread, last, _sums(sample.change)]


def _class(data: dict[str, Any]) -> ClassGain:
    known = ClassGain(float(data["since"]))
    known.state = str(data["state"])
    known.since_probe, known.probed, known.changes = data["since_probe"], data["probed"], data["changes"]
    for lane, (weight, mean, spread, last, change) in data["samples"].items():
        sample = known.samples[lane]
        sample.weight, sample.mean, sample.spread = float(weight), float(mean), float(spread)
        sample.last_at = float("-inf") if last is None else float(last)
        _fill(sample.change, change)
    return known
