"""What a check says."""

from typing import Literal, NamedTuple

Severity = Literal["fault", "warning", "fine", "not checked"]
SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "fine", "not checked")


class Finding(NamedTuple):
    """One sentence with its figure, and what to do about it."""

    check: str
    severity: Severity
    sentence: str
    fix: str = ""
    about: str = ""
    """The file, pair or backend it is about; empty for all of them."""


def fault(check: str, sentence: str, fix: str, about: str = "") -> Finding:
    """Something is wrong and will hurt users."""
    return Finding(check, "fault", sentence, fix, about)


def warning(check: str, sentence: str, fix: str, about: str = "") -> Finding:
    """Something will hurt under circumstances, or blinds the gateway."""
    return Finding(check, "warning", sentence, fix, about)


def fine(check: str, sentence: str, about: str = "") -> Finding:
    """It was looked at and is as it should be."""
    return Finding(check, "fine", sentence, "", about)


def unchecked(check: str, why: str, fix: str = "", about: str = "") -> Finding:
    """It could not be looked at; ``why`` says what was missing."""
    return Finding(check, "not checked", why, fix, about)
