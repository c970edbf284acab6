"""Outcomes as they leave the gateway: names that a client made up are cut, and hold nothing that is no character."""

import msgspec
from msgspec.structs import replace

from proxy.outcome import Outcome

LONGEST_NAME = 200
"""Characters of a name that a client made up (model, application) which leave the gateway."""


def shown(told: Outcome) -> Outcome:
    """The same, safe to show whatever a client sent."""
    if _fits(told.id) and _fits(told.model) and _fits(told.app):
        return told
    return replace(told, id=short(told.id), model=short(told.model), app=short(told.app))


def plain(told: Outcome) -> dict[str, object]:
    """What is known, under the names that the log and ``/admin/state`` use."""
    data: dict[str, object] = msgspec.to_builtins(shown(told))
    return data


def _fits(name: str) -> bool:
    return name.isascii() and len(name) <= LONGEST_NAME


def short(name: str) -> str:
    """A name of a client's making, cut, and without what is no character."""
    return name if _fits(name) else name[:LONGEST_NAME].encode(errors="replace").decode()
