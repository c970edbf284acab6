"""From journal files to what ``policies.replay`` takes: the lives of the processes that wrote them, and their settings.

A journal is exact only from the beginning of a life: a process starts with an empty memory, and so must its replay.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import msgspec

from policies.decision import Decision, NoBackend, Overloaded, Verdict
from policies.events import Event
from policies.settings import PolicySettings
from proxy.config import load
from proxy.journal import Entry, Opened, entries, history
from proxy.outbox import Dropped

_VERDICTS = (Decision, NoBackend, Overloaded)


def settings_text(settings: PolicySettings) -> str:
    """For ``Opened.settings``: a journal that holds its settings can be replayed by whoever has the file."""
    return msgspec.json.encode(settings, order="deterministic").decode()


def settings_hash(settings: PolicySettings) -> str:
    """What journals had instead before they held the settings themselves."""
    return sha256(settings_text(settings).encode()).hexdigest()[:16]


@dataclass
class Life:
    """One life of a writing process. Its events can be read once, and only before the next life's."""

    opened: Opened
    _entries: Iterable[Entry]
    verdicts: list[Verdict] = field(default_factory=list)
    """Decisions found written among the events read so far."""
    dropped: int = 0

    def events(self) -> Iterator[Event]:
        """The events in order; what else is found on the way is set aside."""
        for entry in self._entries:
            if isinstance(entry, _VERDICTS):
                self.verdicts.append(entry)
            elif isinstance(entry, Dropped):
                self.dropped += entry.missing
            elif not isinstance(entry, Opened):
                yield entry

    def settings(self, was: PolicySettings | None) -> PolicySettings:
        """The settings in force: ``was`` if given, else those in the journal, else the defaults."""
        if was is not None:
            return was
        return _settings_from(self.opened.settings) or PolicySettings()

    def doubts(self, was: PolicySettings | None) -> Iterator[str]:
        """Why a replay may differ from what happened. Complete only after the events were read."""
        known, unlike = _settings_from(self.opened.settings), "the settings of --was are not those it was written under"
        if known is not None and was is not None and was != known:
            yield unlike
        elif known is None and self.opened.settings not in ("", settings_hash(was or PolicySettings())):
            # A hash also changes with the version, when a setting was added since.
            yield (
                unlike if was else "it was written under settings that are not in it: give its configuration with --was"
            )
        if self.opened.state == "continues":
            yield "its beginning was rotated away, so the first decisions rest on what can no longer be seen"
        elif self.opened.state != "cold":
            yield f"the process began with a memory from {self.opened.state}, which is not in the journal"
        if self.dropped:
            yield f"{self.dropped:,} events could not be written at the time"


def lives(journal: Path) -> Iterator[Life]:
    """The lives in a journal and the files rotated away from it, oldest first. Raises ``JournalError``, OSError."""
    number = _Number()
    for _, group in groupby(entries(history(journal)), number):
        written = iter(group)
        opened = next(written)
        yield Life(opened if isinstance(opened, Opened) else Opened(state="continues"), written)


class _Number:
    """Numbers the lives: a new one begins where a process opened the file without continuing another file."""

    def __init__(self) -> None:
        self._life = 0

    def __call__(self, entry: Entry) -> int:
        if isinstance(entry, Opened) and entry.state != "continues":
            self._life += 1
        return self._life


def policy_of(configuration: Path | None) -> PolicySettings | None:
    """The policy settings in a configuration file. Raises ``ConfigError``."""
    return None if configuration is None else load(configuration, to_serve=False).policy


def _settings_from(text: str) -> PolicySettings | None:
    try:
        return msgspec.json.decode(text, type=PolicySettings)
    except (msgspec.DecodeError, ValueError):
        return None
