"""The tables of the configuration file. A setting is written here once: name with unit, type, default, reason."""

import os
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from proxy.config_types import (
    BackendUrl,
    Bytes,
    ConfiguredPath,
    Count,
    EngineName,
    Name,
    Port,
    Seconds,
    Section,
    Sha256,
)
from proxy.wire.headers import NEVER_UPSTREAM

MEBIBYTE = 1024 * 1024


class Server(Section):
    """Where the gateway listens, and what it accepts from clients."""

    host: str = "127.0.0.1"
    """Address to listen on. Loopback by default: an open gateway spends other people's GPU time."""
    port: Port = 8080
    """Port to listen on; 0 lets the system choose a free one."""
    admin_host: str = "127.0.0.1"
    """Address of the admin port."""
    admin_port: Port | None = None
    """Port of its own for `/admin/*` and `/dashboard`. Without one they are not served, unless
    `admin_on_public_port` is set."""
    admin_on_public_port: bool = False
    """Serve `/admin/*` and `/dashboard` on the public port too."""
    admin_key_sha256: Sha256 | None = None
    """SHA-256 of the admin key, in hex: `printf %s "$KEY" | sha256sum`. Without an admin key the admin endpoints
    refuse every request."""
    admin_key_file: ConfiguredPath | None = None
    """File that holds the admin key itself (a mounted secret), instead of its hash."""
    tls_cert_file: ConfiguredPath | None = None
    """Certificate chain in PEM form; with it the gateway speaks TLS."""
    tls_key_file: ConfiguredPath | None = None
    """Private key of the certificate, in PEM form."""
    keep_alive_seconds: Seconds = 75.0
    """How long an idle client connection stays open. Longer than the 60 s of common load balancers, so that it is
    they who close first and no request meets a closing connection."""
    max_body_bytes: Bytes = 128 * MEBIBYTE
    """Largest request body; above it the answer is 413. Generous because images travel inside the JSON."""
    max_header_bytes: Bytes = 64 * 1024
    """Largest request head, request line included; above it the answer is 431."""
    grace_seconds: Seconds = 60.0
    """After SIGTERM, how long running answers may take to finish. Keep Kubernetes'
    `terminationGracePeriodSeconds` some seconds above it."""
    workers: Count = 1
    """Processes that share the port. One outruns most GPU fleets; more learn together through `redis_url`."""
    cors_origins: tuple[str, ...] = ()
    """Web origins whose pages may call the gateway, `"*"` for all. None by default: otherwise any page that a
    colleague opens could use a gateway that asks for no key."""
    forwarded: Literal["pass", "append", "drop"] = "pass"
    """`X-Forwarded-*` and `Forwarded` towards the backends: `pass` what came, `append` this hop, or `drop` them."""


class Backend(Section):
    """One engine URL."""

    url: BackendUrl
    """Base URL: `http://host:8000`, `https://…` or `unix:/run/engine.sock`. A trailing `/v1` is taken off."""
    lane: Literal["speculative", "plain"]
    """`speculative` when the engine drafts tokens, else `plain`."""
    name: Name = ""
    """Name in metrics, headers and the journal. Made from lane and position when missing: `plain-1`. Give one where
    backends come and go, so that what was learnt stays with the right one."""
    models: tuple[str, ...] = ()
    """Models it serves; asked from its `/v1/models` when empty."""
    renames: dict[str, str] = Field(default_factory=dict)
    """Where this backend knows a model by another name: `{ "name here" = "name there" }`. For lanes that are twins
    in all but the name."""
    engine: EngineName | None = None
    """Kind of engine, for its metrics and its refusals; found out when missing."""
    depth: int | None = Field(default=None, ge=0)
    """Draft tokens per step, k; found out where the engine tells."""
    drafts_always: bool | None = None
    """False for n-gram methods, which draft only when they find a match; found out where the engine tells."""
    max_requests: Count | None = None
    """Requests it runs at once (vLLM `--max-num-seqs`, llama.cpp `--parallel`); found out where the engine tells."""
    max_context_tokens: Count | None = None
    """Context length; found out where the engine tells. Longer requests are not sent here."""
    refuses: tuple[str, ...] | None = None
    """Request features this backend refuses or mis-serves, instead of the list that comes with its engine.
    `[]` trusts it with everything."""
    takes_usage: bool | None = None
    """Whether `stream_options.include_usage` may be added to streams; the engine's habit when missing."""
    api_key: SecretStr | None = None
    """Key sent to this backend. Prefer the next two: files get copied."""
    api_key_env: str | None = None
    """Environment variable that holds the key."""
    api_key_file: ConfiguredPath | None = None
    """File that holds the key (a mounted secret)."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers added to every request to this backend; their values count as secrets."""
    tls_ca_file: ConfiguredPath | None = None
    """Certificate authorities (PEM) to trust for this backend, instead of the system's."""

    @field_validator("headers")
    @classmethod
    def _legal_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"{name!r} is not a header name")
            if name.lower().encode() in NEVER_UPSTREAM - {b"host"}:
                raise ValueError(f"{name!r} is written by the gateway itself")
            if not value.get_secret_value().isprintable():
                raise ValueError(f"the value of {name!r} holds control characters")
        return headers

    def key(self) -> str | None:
        """The backend's own key, read where it is kept. Raises OSError or KeyError when it is not there."""
        if self.api_key_file is not None:
            return self.api_key_file.read_text().strip()
        if self.api_key_env is not None:
            return os.environ[self.api_key_env]
        return None if self.api_key is None else self.api_key.get_secret_value()

    def request_headers(self) -> dict[str, str]:
        """What every request to this backend carries: its key as a bearer token, and the configured headers."""
        key = self.key()
        bearer = {} if key is None else {"authorization": f"Bearer {key}"}
        return bearer | {name.lower(): value.get_secret_value() for name, value in self.headers.items()}


class Model(Section):
    """Other names of a model, and its tokenizer."""

    name: str
    """Name under which the backends (or their `renames`) serve it."""
    aliases: tuple[str, ...] = ()
    """Names that clients may use instead. `"*"` stands for every name that no backend serves, for tools that have a
    model name built in."""
    tokenizer: str | None = None
    """Counts prompts exactly where the decision is close: a `.tiktoken` file, or `cl100k_base` or `o200k_base` where
    tiktoken's cache holds it (nothing is downloaded). Without one, tokens are estimated from bytes by what `usage` said
    of earlier requests."""


class Timeouts(Section):
    """Patience with backends. There is no limit on the whole of an answer: long ones are legitimate."""

    connect_seconds: Seconds = 2.0
    """Until a backend accepts the connection, TLS included; then the next one is tried."""
    first_byte_seconds: Seconds = 300.0
    """From the request to the first byte of the answer. Long: 45–250 s are normal for 100k-token prompts."""
    idle_seconds: Seconds = 120.0
    """Silence in the middle of an answer."""
    pool_idle_seconds: Seconds = 3.0
    """How long an unused backend connection is kept. Below the 5 s after which the engines close it themselves."""
    client_seconds: Seconds = 60.0
    """Silence of a client in the middle of sending its request."""
    unread_seconds: Seconds = 600.0
    """How long a client may leave its answer unread before the connection is closed: it holds a place at the engine."""


class Watch(Section):
    """How often backends are looked at, beside the traffic itself."""

    every_seconds: Seconds = 2.0
    """Between two looks at a backend that is well: `/health` (never a prompt: a fixed one would poison n-gram drafters)
    and its metrics page."""
    patience_seconds: Seconds = 5.0
    """For one answer; an engine deep in a long prefill answers late."""
    discovery_seconds: Seconds = 10.0
    """For all questions of finding out what a backend is."""
    away_seconds: Seconds = 15.0
    """Longest pause between two looks at a backend that is away; pauses double up to it."""
    afresh_seconds: Seconds = 300.0
    """After so long a backend is asked again what it is: adapters come and go while it runs."""
    probe_silent: bool = True
    """Send one tiny request with fresh text to a backend that is well but has finished nothing for
    `policy.silent_seconds` while others have; without it a backend that recovered is found out very late."""


class Keys(Section):
    """API keys of clients. With none at all the gateway asks for none."""

    sha256: dict[Name, Sha256] = Field(default_factory=dict)
    """Name → SHA-256 of the key in hex (`printf %s "$KEY" | sha256sum`). The name is the application in metrics,
    verdicts and the journal."""
    file: ConfiguredPath | None = None
    """File with one `name sha256` per line, `#` for comments; read again when it changes, without a restart."""
    reload_seconds: Seconds = 5.0
    """Between two looks at the file."""


class App(Section):
    """What is known of an application: an API key's name, what `x-draftlane-app` says, or both with a slash between."""

    lane: Literal["speculative", "plain"] | None = None
    """Always this lane, as if each request had asked for it."""
    expected_output_tokens: Count | None = None
    """Output length to assume where the client does not say; instead of the learnt one."""


class Journal(Section):
    """The log of events, from which decisions can be replayed and explained. It holds no prompt and no answer."""

    path: ConfiguredPath | None = None
    """File to write, one JSON array a line; no journal when missing. With several workers each adds its number."""
    max_bytes: Bytes = 256 * MEBIBYTE
    """Size at which a new file is begun."""
    keep_files: Count = 8
    """Full files kept beside the one being written."""


class Log(Section):
    """What is said on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important lines that are written."""
    format: Literal["json", "text"] | None = None
    """One JSON object a line, or text for people; text on a terminal and JSON elsewhere when missing."""
    decisions: bool = True
    """One line per decision, with its reason."""
