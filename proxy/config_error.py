"""The one error of the configuration; alone here so that the command line can know it without loading pydantic."""

from collections.abc import Iterable


class ConfigError(Exception):
    """The operator's mistake. ``faults`` has one line for each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))
