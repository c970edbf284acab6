"""``draftlane doctor``: facts are gathered first, then every check of ``CHECKS`` looks at them and says what it finds."""

from proxy.checkup.table import CHECKS, Check, examine

__all__ = ["CHECKS", "Check", "examine"]
