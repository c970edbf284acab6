"""Reads measured acceptance profiles: JSON with one histogram per kind of content.

    {"profiles": [{"kind": "chat", "method": "eagle3", "k": 3, "hist": [0.38, 0.24, 0.13, 0.25],
                   "request_al_mean": 2.28, "request_al_sd": 0.35}, …]}

``hist[j]`` is the share of verification steps that accepted exactly j drafts. ``request_al_mean`` and
``request_al_sd``, over requests, are optional; without them the pooled mean and a spread of 0.25 are taken.
"""

from pathlib import Path

import msgspec

from policies.simulation_workload import Acceptance

_HIT_RATE = 0.8
"""Of drafts that come from a match: lookup drafters are all or nothing, 0.73 to 0.95 once they hit."""
_SPREAD = 0.25


class ProfileError(ValueError):
    """A profile that cannot be read or lacks what was asked for; says which file."""


class _Histogram(msgspec.Struct):
    kind: str
    k: int
    hist: list[float]
    method: str = ""
    request_al_mean: float | None = None
    request_al_sd: float | None = None
    drafted: float | None = None


class _Profiles(msgspec.Struct):
    profiles: list[_Histogram]


def read(path: Path, family: str, depth: int, always: bool) -> dict[str, Acceptance]:
    """Acceptance per kind at ``depth``, of methods whose name begins with ``family`` (or that name none).

    ``always``: every step carries drafts. Otherwise the share that does is the profile's ``drafted``, or
    follows from the mean and a hit rate of 0.8. Raises ``ProfileError``; ``OSError`` when it cannot be opened.
    """
    try:
        every = msgspec.json.decode(path.read_bytes(), type=_Profiles).profiles
    except msgspec.DecodeError as error:
        raise ProfileError(f"{path}: {error}") from None
    fitting = [one for one in every if one.k == depth and (not one.method or one.method.startswith(family))]
    if not fitting:
        known = sorted({(one.method or "any", one.k) for one in every})
        offered = ", ".join(f"{method} k={k}" for method, k in known) or "nothing"
        raise ProfileError(f"{path}: no histogram for {family} at depth {depth}; it has {offered}")
    return {one.kind: _acceptance(path, one, always) for one in fitting}


def _acceptance(path: Path, one: _Histogram, always: bool) -> Acceptance:
    if len(one.hist) != one.k + 1:
        raise ProfileError(f"{path}: {one.kind}: depth {one.k} needs {one.k + 1} shares, not {len(one.hist)}")
    try:
        usual = Acceptance.of_histogram(one.hist, _SPREAD)
    except ValueError as error:
        raise ProfileError(f"{path}: {one.kind}: {error}") from None
    if one.request_al_mean is not None and one.request_al_mean > 1.0:
        spread = (one.request_al_sd or 0.0) / (one.request_al_mean - 1.0)
        usual = usual._replace(length=min(one.request_al_mean, one.k + 1.0), spread=spread)
    if not always:
        hits = one.drafted if one.drafted is not None else (usual.length - 1.0) / (_HIT_RATE * one.k)
        usual = usual._replace(drafted=min(1.0, hits))
    return usual
