"""The configuration: one TOML file, checked as a whole before anything starts.

``load`` reads a file, ``from_urls`` builds the same from nothing but backend URLs. What comes out is frozen and
sound: whoever holds a ``Config`` checks nothing again. The sections are in ``proxy.config_sections``, the policy's own
settings in ``policies.settings``; JSON Schema, reference page and error messages derive from them.
"""

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import WithDefaultSchema

from policies.settings import PolicySettings
from proxy.config_error import ConfigError
from proxy.config_faults import Fault, cross_faults, faults_of
from proxy.config_sections import App, Backend, Journal, Keys, Log, Model, Server, Timeouts, Watch
from proxy.config_types import Name, RequestPath, Section

__all__ = ["Backend", "Config", "ConfigError", "from_urls", "load", "schema", "with_server"]


class Config(Section):
    """Everything an operator may decide. Keys without a table come first in the file."""

    redis_url: str | None = Field(default=None, pattern=r"^(rediss?|unix)://", repr=False)
    """Redis through which replicas share load and learning: `redis://host:6379/0`. Without it each learns alone."""
    extra_paths: tuple[RequestPath, ...] = ()
    """Paths beyond the known surfaces that are passed on uncounted: exact ones, or prefixes that end in `/*`."""
    forward_client_key: bool = False
    """Send the client's own key on to backends that have none configured. Off: a key for the gateway is none of the
    engine's business."""
    server: Server = Server()
    """Where the gateway listens, and what it accepts from clients."""
    backends: tuple[Backend, ...] = ()
    """The engines; `[[backends]]` once for each."""
    models: tuple[Model, ...] = ()
    """Other names of models; `[[models]]` once for each model that has some."""
    timeouts: Timeouts = Timeouts()
    """Patience with backends and clients."""
    watch: Watch = Watch()
    """How often backends are looked at, beside the traffic itself."""
    keys: Keys = Keys()
    """API keys of clients."""
    apps: dict[Name, App] = Field(default_factory=dict)
    """What is known of applications; `[apps.NAME]` for each."""
    policy: PolicySettings = PolicySettings()
    """How requests are judged. The defaults are meant to be left alone."""
    journal: Journal = Journal()
    """The log of events."""
    log: Log = Log()
    """What is said on standard error."""

    @field_validator("backends")
    @classmethod
    def _named(cls, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
        return tuple(_named_backends(backends))

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        for path, message in cross_faults(self.model_dump()):
            raise ValueError(f"{path}: {message}")
        return self


def _named_backends(backends: Sequence[Backend]) -> Iterator[Backend]:
    """Names for those without: lane and place among its lane. Never the URL, which clients need not see."""
    taken = {backend.name for backend in backends}
    places = {"speculative": 0, "plain": 0}
    for backend in backends:
        places[backend.lane] += 1
        if backend.name:
            yield backend
            continue
        while (name := f"{backend.lane}-{places[backend.lane]}") in taken:
            places[backend.lane] += 1
        taken.add(name)
        yield backend.model_copy(update={"name": name})


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    bare = _bare(Config.model_json_schema(schema_generator=_WithMadeDefaults))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "draftlane.toml", **bare}


class _WithMadeDefaults(GenerateJsonSchema):
    """Tells the defaults that a factory makes, too: an operator wants to see the lane rules that hold anyway."""

    def get_default_value(self, schema: WithDefaultSchema) -> Any:
        factory = schema.get("default_factory")
        return factory() if callable(factory) else super().get_default_value(schema)  # type: ignore[call-arg]  # ours take no data


def _bare(node: Any) -> Any:
    """Without the titles, which repeat the keys, and without the defaults of whole tables, which repeat their settings."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    noise = {"title"} if isinstance(node.get("title"), str) else set()
    noise |= {"default"} if "$ref" in node else set()
    return {key: _bare(value) for key, value in node.items() if key not in noise}


def load(path: Path, *, to_serve: bool = True) -> Config:
    """Read and check a file.

    ``to_serve=False`` leaves out what only matters for serving (backends, environment variables and files of secrets),
    so that a journal can be replayed under a colleague's settings. Raises ConfigError with every fault found.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 text"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    config = _checked(data, str(path), path.resolve().parent)
    return _fit_to_serve(config, str(path)) if to_serve else config


def from_urls(speculative: Sequence[str], plain: Sequence[str], server: Mapping[str, Any] | None = None) -> Config:
    """The configuration of ``draftlane serve --speculative URL… --plain URL…``; ``server`` overrides its settings.

    Raises ConfigError.
    """
    source = "command line"
    lanes = (("speculative", speculative), ("plain", plain))
    backends = [{"url": url, "lane": lane} for lane, urls in lanes for url in urls]
    return _fit_to_serve(_checked({"backends": backends, "server": dict(server or {})}, source, None), source)


def with_server(config: Config, changed: Mapping[str, Any]) -> Config:
    """The configuration with some ``[server]`` settings from the command line. Raises ConfigError."""
    try:
        server = Server.model_validate(config.server.model_dump() | dict(changed))
        return config.model_copy(update={"server": server})
    except ValidationError as error:
        raise _error("command line", faults_of(error, Server.model_json_schema())) from error


def _checked(data: Mapping[str, Any], source: str, folder: Path | None) -> Config:
    """JSON on the way because strict validation should take an array for a tuple, but not "8080" for a port."""
    try:
        return Config.model_validate_json(json.dumps(data, default=str), context={"folder": folder})
    except ValidationError as error:
        # As a dict, since a fault across settings is found again by ``Config`` when everything else is right.
        faults = dict.fromkeys([*faults_of(error, schema()), *cross_faults(data)])
        raise _error(source, faults) from error


def _error(source: str, faults: Iterable[Fault]) -> ConfigError:
    return ConfigError(f"{source}: {path}: {message}" for path, message in faults)


def _fit_to_serve(config: Config, source: str) -> Config:
    if faults := list(_surroundings(config)):
        raise _error(source, faults)
    return config


def _surroundings(config: Config) -> Iterator[Fault]:
    """What the file is right about only if the machine plays along."""
    if not config.backends:
        yield "backends", "at least one backend is needed"
    for index, backend in enumerate(config.backends):
        if backend.api_key_env is not None and backend.api_key_env not in os.environ:
            yield f"backends.{index}.api_key_env", f"the environment has no {backend.api_key_env}"
        yield from _unreadable(f"backends.{index}", backend, ("api_key_file", "tls_ca_file"))
    yield from _unreadable("server", config.server, ("admin_key_file", "tls_cert_file", "tls_key_file"))
    yield from _unreadable("keys", config.keys, ("file",))


def _unreadable(path: str, section: Section, names: Sequence[str]) -> Iterator[Fault]:
    for name in names:
        file = getattr(section, name)
        if file is not None and not (file.is_file() and os.access(file, os.R_OK)):
            yield f"{path}.{name}", f"cannot read {file}"
