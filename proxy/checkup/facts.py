"""What was found out about a lane. Checks look at nothing else."""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.checkup.model_files import Tokenized
from proxy.engines.base import Discovered, Scrape


class Refusal(NamedTuple):
    """What became of one request with a feature in it."""

    status: int | None
    because_of_drafts: bool
    message: str = ""


class Probe(NamedTuple):
    """One streamed answer to fresh text, and the counters around it."""

    before: Scrape | None = None
    after: Scrape | None = None
    completion_tokens: int | None = None
    events: int = 0
    draft_tokens: int | None = None
    """As the answer itself tells (vLLM's metrics, llama.cpp's timings); None where it tells nothing."""
    accepted_tokens: int | None = None
    tells: bool = False
    """The answer carries per-request figures of the engine."""
    fault: str = ""


class HangUp(NamedTuple):
    """Requests running before, during and after a client left in mid-stream; ``seconds`` until it was noticed."""

    during: int | None = None
    seconds: float | None = None
    fault: str = ""


class Lane(NamedTuple):
    """A backend, as far as it answered."""

    name: str
    lane: str
    """``speculative`` or ``plain``."""
    url: str
    model: str = ""
    """The model asked for, in this backend's own words."""
    found: Discovered | None = None
    fault: str = ""
    """Why nothing is known."""
    cut: Mapping[str, tuple[int, ...]] = {}
    """Name of a probe text → token ids."""
    dressed: tuple[int, ...] | str | None = None
    """A chat as the template writes it, as ids or as text."""
    chat_tokens: int | None = None
    """Prompt tokens of that chat."""
    answers: tuple[str, ...] = ()
    """Answers at temperature 0."""
    again: tuple[str, ...] = ()
    """The same questions once more."""
    probe: Probe = Probe()
    refusals: Mapping[str, Refusal] = {}
    hang_up: HangUp = HangUp()


class Facts(NamedTuple):
    """All that is known when the checks begin."""

    target: Tokenized | None = None
    draft: Tokenized | None = None
    lanes: tuple[Lane, ...] = ()
    flags: str | None = None

    def lane(self, kind: str) -> Lane | None:
        """The first reachable backend of a lane."""
        return next((lane for lane in self.lanes if lane.lane == kind and lane.found is not None), None)
