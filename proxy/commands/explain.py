"""``draftlane explain``."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from policies.decision import Decision, Verdict
from policies.events import Arrived, Cancelled, Dispatched, Event, Failed, Finished, FirstToken, Refused
from policies.explain import explain as sentences
from policies.fleet import Fleet
from policies.replay import replay
from policies.settings import PolicySettings
from proxy.commands.replay import Journal, Was
from proxy.journal import JournalError
from proxy.replaying import lives, policy_of


class Step(NamedTuple):
    """A decision for the request, or what came of it."""

    after_seconds: float
    """Since the request arrived."""
    told: list[str]
    verdict: Verdict | None = None


def explain(
    journal: Journal,
    request_id: Annotated[str, typer.Argument(help="The x-request-id of the answer.")],
    was: Was = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Say why a request went where it went, and what came of it.

    The journal is replayed up to the request, so that the figures are those of that moment.
    """
    try:
        steps, doubts = story(journal, request_id, policy_of(was))
    except JournalError as error:
        raise typer.BadParameter(str(error), param_hint="JOURNAL") from error
    if not steps:
        raise typer.BadParameter(f"the journal has no request {request_id!r}", param_hint="REQUEST_ID")
    if as_json:
        told = [step._asdict() | {"verdict": step.verdict and step.verdict._asdict()} for step in steps]
        typer.echo(json.dumps({"id": request_id, "steps": told, "doubts": doubts}, ensure_ascii=False))
        return
    for step in steps:
        for number, sentence in enumerate(step.told):
            typer.echo((f"{step.after_seconds:9.3f} s  " if number == 0 else " " * 13) + sentence)
    for doubt in doubts:
        typer.echo(f"note: {doubt}")


def story(journal: Path, request_id: str, was: PolicySettings | None) -> tuple[list[Step], list[str]]:
    """The steps of a request in order, and why they may not be what happened. Empty when it is not in the journal."""
    for life in lives(journal):
        followed = Followed(life.events(), request_id)
        settings = life.settings(was)
        fleet = Fleet(settings)
        for arrived, verdict in replay(followed, settings, fleet):
            if arrived.id == request_id:
                followed.add(arrived.at, sentences(verdict, fleet), verdict)
        if followed.steps:
            return followed.steps, list(life.doubts(was))
    return [], []


class Followed:
    """Passes events on, and tells those of one request; stops when that request is over."""

    def __init__(self, events: Iterable[Event], request_id: str) -> None:
        self._events = events
        self._id = request_id
        self._began: float | None = None
        self.steps: list[Step] = []

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            yield event
            if getattr(event, "id", None) == self._id and not isinstance(event, Arrived):
                self.add(event.at, [_came_of_it(event)])
                if isinstance(event, Finished | Cancelled) or (isinstance(event, Failed) and event.final):
                    return

    def add(self, at: float, told: list[str], verdict: Verdict | None = None) -> None:
        """The next step, at a time."""
        self._began = at if self._began is None else self._began
        again = isinstance(verdict, Decision) and any(step.verdict for step in self.steps)
        self.steps.append(Step(round(at - self._began, 6), ["It was judged again.", *told] if again else told, verdict))


def _came_of_it(event: Event) -> str:
    match event:
        case Dispatched():
            return f"It was sent to {event.backend}."
        case FirstToken():
            return "The first token came."
        case Finished():
            return f"It ended with status {event.status}{_tokens(event)}."
        case Failed():
            return f"{event.backend} failed: {event.fault}{'' if event.status is None else f' {event.status}'}."
        case Refused():
            return f"{event.backend} refused it because of {event.feature}, which its lane cannot serve."
        case Cancelled():
            return f"The client left after {event.events} events of the answer."
        case _:
            return f"{type(event).__name__}."


def _tokens(event: Finished) -> str:
    told = [
        f"{count:,} {name}"
        for count, name in (
            (event.prompt_tokens, "prompt tokens"),
            (event.cached_tokens, "of them cached"),
            (event.completion_tokens, "output tokens"),
            (event.steps, "steps"),
        )
        if count is not None
    ]
    if event.draft_tokens:
        told.append(f"{event.accepted_tokens or 0:,} of {event.draft_tokens:,} draft tokens accepted")
    return f": {', '.join(told)}" if told else ""
