"""Says on the log when an alarm begins and when it is over. What counts as one is ``policies.alarms``'."""

import logging

from policies.alarms import alarms
from policies.fleet import Fleet

log = logging.getLogger("draftlane.alarm")


class Alarming:
    """Remembers which alarms were told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], str] = {}

    def look(self, fleet: Fleet, now: float) -> None:
        """Tell what is new and what is over since the last look."""
        present = {(alarm.kind, alarm.subject): alarm.text for alarm in alarms(fleet, now)}
        for key, text in present.items():
            if key not in self._told:
                log.warning("alarm %s: %s", key[0], text)
        for kind, subject in sorted(self._told.keys() - present.keys()):
            log.info("alarm %s is over: %s", kind, subject or "the fleet")
        self._told = present
