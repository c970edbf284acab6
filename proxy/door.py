"""The door: who is asking, for what, under which id; and the few header lines every answer carries.

Nothing here decides where a request goes. It turns requests away that must not come in (no key, too
large) before their body is read.
"""

import os
import re

from proxy.config import Config
from proxy.config_sections import App
from proxy.errors import GatewayError
from proxy.keys import Keys
from proxy.surfaces import SURFACES, extra
from proxy.surfaces.base import Surface
from proxy.wire.door import too_large
from proxy.wire.headers import REQUEST_ID
from proxy.wire.inbound import Head, Passport

LANES = {b"speculative": "speculative", b"plain": "plain"}
APP = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}")
NO_SETTINGS = App()
EXPOSED = b"x-request-id, x-draftlane-lane, x-draftlane-class, x-draftlane-backend, x-draftlane-reason"


class Routes:
    """Which surface serves which path, with and without ``/v1`` and trailing slash."""

    def __init__(self, extra_paths: tuple[str, ...]) -> None:
        self._posts: dict[bytes, Surface] = {}
        self._upstream: dict[bytes, bytes] = {}
        for surface in SURFACES:
            for path in surface.paths:
                self._posts[path.encode()] = surface
                self._upstream[path.encode()] = _canonical(surface, path).encode()
        self._extras = {path.encode(): extra(path) for path in extra_paths if not path.endswith("/*")}
        self._prefixes = [(path[:-1].encode(), extra(path)) for path in extra_paths if path.endswith("/*")]

    def at(self, method: bytes, path: bytes) -> Surface | None:
        """The surface for a request line; None where the control plane answers."""
        if method == b"POST":
            surface = self._posts.get(path) or self._posts.get(path.rstrip(b"/"))
            if surface is not None:
                return surface
        if method == b"OPTIONS" or path.rstrip(b"/") in self._posts:
            return None
        found = self._extras.get(path)
        if found is None:
            found = next((surface for prefix, surface in self._prefixes if path.startswith(prefix)), None)
        return found

    def upstream(self, path: bytes) -> bytes:
        """The path as the backends know it."""
        known = self._upstream.get(path) or self._upstream.get(path.rstrip(b"/"))
        return path if known is None else known

    def is_surface(self, path: str) -> bool:
        """For 405 instead of 404."""
        return path.rstrip("/").encode() in self._posts


def _canonical(surface: Surface, path: str) -> str:
    bare = path.removeprefix("/v1")
    return next(known for known in surface.paths if known.removeprefix("/v1") == bare)


class Clerk:
    """Reads headers once per request."""

    def __init__(self, config: Config, keys: Keys) -> None:
        self._keys = keys
        self._max_body_bytes = config.server.max_body_bytes
        self._origins = frozenset(origin.encode() for origin in config.server.cors_origins)
        self._apps = config.apps
        self._number = 0
        self._prefix = os.urandom(5).hex()

    def recall(self, head: Head) -> Passport:
        """``passport``, made once for each head and state of the keys."""
        passport = head.passport
        if passport is None or head.passport_at != self._keys.version:
            head.passport_at = self._keys.version
            passport = head.passport = self.passport(head)
        return passport

    def passport(self, head: Head) -> Passport:
        """What the headers say."""
        authorization = api_key = wanted_id = app = lane = expected = agent = origin = None
        for name, value in head.headers:
            if name == b"authorization":
                authorization = value
            elif name == b"user-agent":
                agent = value
            elif name[:2] == b"x-":
                if name == b"x-request-id":
                    wanted_id = value
                elif name == b"x-api-key":
                    api_key = value
                elif name == b"x-draftlane-app":
                    app = value
                elif name == b"x-draftlane-lane":
                    lane = value
                elif name == b"x-draftlane-expected-output-tokens":
                    expected = value
            elif name == b"origin":
                origin = value
        known = None if self._keys.open else self._keys.name_of(authorization, api_key)
        name_ = _name(known, app, agent)
        own = self._apps.get(name_) or self._apps.get(known or "", NO_SETTINGS)
        return Passport(
            name_,
            self._keys.open or known is not None,
            wanted_id.decode() if wanted_id is not None and REQUEST_ID.fullmatch(wanted_id) else None,
            own.lane if lane is None else LANES.get(lane.strip().lower(), own.lane),
            own.expected_output_tokens if expected is None else _count(expected, own.expected_output_tokens),
            origin if origin is not None and self.allows(origin) else None,
        )

    def allows(self, origin: bytes) -> bool:
        """Whether pages of this origin may call (CORS)."""
        return bool(self._origins) and (b"*" in self._origins or origin in self._origins)

    def new_id(self) -> str:
        """For a request that has none of its own."""
        self._number += 1
        return f"{self._prefix}-{self._number}"

    def refusal(self, passport: Passport, length: int | None) -> GatewayError | None:
        """Why the request is turned away before its body is read."""
        if not passport.may_enter:
            return GatewayError("unauthorized", "A valid API key is required: Authorization: Bearer KEY.")
        if length is not None and length > self._max_body_bytes:
            return too_large(self._max_body_bytes)
        return None


def cors_lines(origin: bytes | None) -> list[bytes]:
    """Header lines that let a page read the answer."""
    if origin is None:
        return []
    return [
        b"access-control-allow-origin: %b\r\n" % origin,
        b"access-control-expose-headers: %b\r\n" % EXPOSED,
        b"vary: origin\r\n",
    ]


def _name(key: str | None, app: bytes | None, agent: bytes | None) -> str:
    """The key's name, so that nobody speaks for another; behind it, or without keys alone, what the client says it is."""
    said = _app(app)
    if key is not None:
        return key if said is None else f"{key}/{said}"
    return said or _family(agent)


def _app(header: bytes | None) -> str | None:
    if header is None or not APP.fullmatch(header.strip()):
        return None
    return header.strip().decode()


def _family(agent: bytes | None) -> str:
    """``OpenAI/Python 3.5`` and ``OpenAI/Python 3.6`` are one application: the product name without versions."""
    if not agent:
        return "unnamed"
    product = agent.split(b" ", 1)[0].split(b"/", 1)
    name = product[0]
    if len(product) > 1 and product[1][:1].isalpha():
        name = b"/".join(product)
    return name[:40].decode("ascii", "replace").lower() if APP.fullmatch(name[:40]) else "unnamed"


def _count(header: bytes, otherwise: int | None) -> int | None:
    digits = header.strip()
    return min(int(digits[:12]), 10_000_000) if digits.isdigit() else otherwise
