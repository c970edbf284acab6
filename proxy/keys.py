"""API keys of clients, known only by their SHA-256.

A key's name is the application it stands for. Keys may live in the configuration, in a file that is read again when it
changes, or both. Neither a key nor a line of the file ever appears in an error or a log.
"""

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from proxy.config_error import ConfigError

log = logging.getLogger(__name__)

REMEMBERED = 4096
"""Header values whose key was right. Wrong ones are not remembered: anybody could fill the memory with them."""


class Keys:
    """Who is asking? Raises ``ConfigError`` when the file cannot be read or has faults."""

    def __init__(self, sha256: Mapping[str, str], file: Path | None = None) -> None:
        self.open = not sha256 and file is None
        """No keys are configured: everybody may ask. A configured file without lines lets nobody in."""
        self._configured = list(sha256.items())
        self._file = file
        self._seen = _look(file)
        self._names = _table([*self._configured, *_read(file)])
        self.version = 0
        """Grows with every reload that changed something."""
        self._by_authorization: dict[bytes, str] = {}
        self._by_key: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return f"Keys({len(self._names)} keys)"

    def name_of(self, authorization: bytes | None, x_api_key: bytes | None) -> str | None:
        """The name of the key in either header value, None when there is no right one.

        A key seen before costs one dictionary lookup. Timing tells nothing useful: the lookup is by a hash that is
        salted per process, everything after it by SHA-256. (Before it, whole heads are compared, ``proxy.wire.known``: many
        bytes at a time, so that nobody guesses his way through a key.)
        """
        if authorization is not None:
            name = self._by_authorization.get(authorization) or self._by_authorization_anew(authorization)
            if name is not None:
                return name
        if x_api_key is not None:
            return self._by_key.get(x_api_key) or self._remember(self._by_key, x_api_key, x_api_key)
        return None

    def reload(self) -> bool:
        """Read the file again if it changed; True when it did. A faulty file is complained of and changes nothing.

        Call it every few seconds. It touches the disk, so off the loop where the file may be on a network.
        """
        seen = _look(self._file)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            names = _table([*self._configured, *_read(self._file)])
        except ConfigError as error:
            log.error("keys are unchanged, since the file has faults: %s", "; ".join(error.faults))
            return False
        self._names = names
        self._by_authorization.clear()
        self._by_key.clear()
        self.version += 1
        log.info("keys were read again: %d keys", len(names))
        return True

    def _by_authorization_anew(self, authorization: bytes) -> str | None:
        scheme, _, key = authorization.partition(b" ")
        return self._remember(self._by_authorization, authorization, key) if scheme.lower() == b"bearer" else None

    def _remember(self, memory: dict[bytes, str], header: bytes, key: bytes) -> str | None:
        digest = hashlib.sha256(key.strip()).digest()
        found, name = self._names.get(digest[:8], (b"", ""))
        if not hmac.compare_digest(found, digest):
            return None
        if len(memory) >= REMEMBERED:
            memory.clear()
        memory[header] = name
        return name


def _table(pairs: Iterable[tuple[str, str]]) -> dict[bytes, tuple[bytes, str]]:
    """First bytes of the digest → digest, name. One key under two names would be an accident waiting to happen."""
    table: dict[bytes, tuple[bytes, str]] = {}
    for name, sha256 in pairs:
        digest = bytes.fromhex(sha256)
        other = table.setdefault(digest[:8], (digest, name))[1]
        if other != name:
            raise ConfigError([f"keys: {other} and {name} have the same key"])
    return table


def _look(file: Path | None) -> tuple[int, ...]:
    """What changes when the file does, also when a mounted secret's symbolic link is swapped."""
    if file is None:
        return ()
    try:
        stat = file.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_dev


def _read(file: Path | None) -> Iterator[tuple[str, str]]:
    if file is None:
        return
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror or error}"]) from error
    except UnicodeDecodeError:
        raise ConfigError([f"{file}: not UTF-8 text"]) from None
    parsed = [(number, _LINE.fullmatch(line)) for number, line in enumerate(lines, 1) if _is_said(line)]
    if faults := [f"{file}:{number}: expected `name sha256-in-hex`" for number, match in parsed if match is None]:
        raise ConfigError(faults)
    for _, match in parsed:
        if match is not None:
            yield match["name"], match["sha256"]


# The name as in proxy.config_types.Name.
_LINE = re.compile(r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._:/-]{0,62})\s+(?P<sha256>[0-9a-fA-F]{64})\s*(#.*)?")


def _is_said(line: str) -> bool:
    return bool(line.partition("#")[0].strip())
