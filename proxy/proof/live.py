"""Progress and running medians on standard error while a comparison runs."""

from collections import defaultdict
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from proxy.proof.arm import Sample


class Live:
    """A progress bar with live figures; nothing is drawn when standard error is not a terminal."""

    def __init__(self, requests: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("measuring", total=requests, figures="")
        self._per_token: dict[str, list[float]] = defaultdict(list)

    def __enter__(self) -> "Live":
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def told(self, sample: Sample) -> None:
        """One request ended."""
        if sample.tpot_seconds is not None:
            self._per_token[sample.arm].append(sample.tpot_seconds)
        self._progress.update(self._task, advance=1, description=sample.kind, figures=self.figures())

    def figures(self) -> str:
        """Median milliseconds per output token of each arm so far."""
        return "  ".join(f"{arm} {median(values) * 1000:.1f} ms/token" for arm, values in self._per_token.items())
