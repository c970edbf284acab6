"""Names of models: aliases, what each backend calls a model, and the merged list for clients.

An unknown name is not refused out of hand. Engines load adapters at run time, and llama.cpp answers to
any name; as long as the fleet serves one model, the backend's own answer is the authority. Only with
several models is there no telling whom to ask, and the gateway answers 404 itself.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from proxy.backends import Backend
from proxy.config import Config
from proxy.config_error import ConfigError
from proxy.errors import GatewayError
from proxy.surfaces.base import Asked

if TYPE_CHECKING:
    from proxy.tokens import Tokenizer

log = logging.getLogger("draftlane")

ANY = "*"


class Models:
    """Who serves what, under which names. ``refresh`` after discovery found something new."""

    def __init__(self, config: Config, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._aliases = {alias: model.name for model in config.models for alias in model.aliases}
        self._tokenizers = _tokenizers(config)
        self._served: dict[str, tuple[str, ...]] = {}
        self.known: frozenset[str] = frozenset()
        self._stand_in: str | None = None
        """For a name nobody knows."""
        self.refresh()

    def refresh(self) -> None:
        """Collect names again from configuration and discovery."""
        self._served = {name: tuple(_names(backend)) for name, backend in self._backends.items()}
        self.known = frozenset(model for models in self._served.values() for model in models)
        self._stand_in = self._only()

    def served_by(self, backend: str) -> tuple[str, ...]:
        """Models of a backend under the names clients use; empty while nothing is known."""
        return self._served[backend]

    def resolve(self, asked: str | None) -> str:
        """The name to route by. Raises GatewayError (404) when nobody could serve it."""
        if asked is None:
            return self._stand_in or ""
        name = self._aliases.get(asked, asked)
        if name in self.known:
            return name
        if ANY in self._aliases:
            return self._aliases[ANY]
        if self._stand_in is not None:
            return self._stand_in
        raise GatewayError("model_not_found", f"The model {asked!r} does not exist.", param="model")

    def _only(self) -> str | None:
        """The fleet's one model where there is just one (adapters of it aside), else None."""
        bases = {models[0] for models in self._served.values() if models}
        if any(not models for models in self._served.values()):
            return next(iter(sorted(bases)), "") if len(bases) < 2 else None
        return next(iter(bases)) if len(bases) == 1 else None

    def count(self, model: str, asked: Asked) -> int | None:
        """Exact prompt tokens where the operator named a tokenizer and the whole prompt is short, else None.

        Role markers and templates are not in the text: they cost a few tokens a message, which stay uncounted.
        """
        tokenizer = self._tokenizers.get(model)
        if tokenizer is None or asked.media:
            return None
        text = asked.sample()
        return tokenizer.count(text) if text else None

    def name_at(self, backend: Backend, asked: str | None) -> str | None:
        """What must stand in the body for this backend; None when the client's own name is right."""
        if asked is None:
            return None
        name = self._aliases.get(asked, asked)
        if name not in self.known and ANY in self._aliases:
            name = self._aliases[ANY]
        name = backend.renames.get(name, name)
        return None if name == asked else name

    def cards(self) -> list[dict[str, object]]:
        """Entries of ``/v1/models``: each model once, as its backend describes it, then the aliases."""
        cards: dict[str, dict[str, object]] = {}
        for backend in self._backends.values():
            for name, card in _named_cards(backend):
                cards.setdefault(name, card if card["id"] == name else {**card, "id": name})
            for name in self._served[backend.name]:
                cards.setdefault(name, {"id": name, "object": "model", "created": 0, "owned_by": "draftlane"})
        for alias, name in self._aliases.items():
            if alias != ANY:
                base = cards.get(name, {"object": "model", "created": 0, "owned_by": "draftlane"})
                cards.setdefault(alias, {**base, "id": alias, "root": name})
        return list(cards.values())


def _tokenizers(config: Config) -> "dict[str, Tokenizer]":
    """Raises ConfigError for a file that is no encoding; an encoding that is not on this machine is only said."""
    named = [
        (number, model.name, model.tokenizer)
        for number, model in enumerate(config.models)
        if model.tokenizer is not None
    ]
    if not named:
        return {}
    from proxy.tokens import load  # noqa: PLC0415  # 1 MB with tiktoken, of no use to a gateway that names no tokenizer

    found: dict[str, Tokenizer] = {}
    for number, name, source in named:
        try:
            tokenizer = load(source)
        except ValueError as error:
            raise ConfigError([f"models.{number}.tokenizer: {error}"]) from error
        if tokenizer is None:
            log.warning("tokenizer %s is not on this machine; tokens are estimated", source)
        else:
            found[name] = tokenizer
    return found


def _names(backend: Backend) -> Iterable[str]:
    if backend.settings.models:
        return backend.settings.models
    back = _here(backend)
    found = () if backend.discovered is None else backend.discovered.models
    return [back.get(name, name) for name in found]


def _named_cards(backend: Backend) -> Iterator[tuple[str, dict[str, object]]]:
    """What the backend says of each model it may serve, under the name clients use."""
    back, allowed = _here(backend), backend.settings.models
    for card in () if backend.discovered is None else backend.discovered.cards:
        name = back.get(str(card.get("id")), str(card.get("id")))
        if "id" in card and (not allowed or name in allowed):
            yield name, card


def _here(backend: Backend) -> dict[str, str]:
    """The backend's own name of a model → the clients' name."""
    return {there: here for here, there in backend.renames.items()}
