"""What all engines share: an engine is a value, its differences are data and one function."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from proxy.engines import exposition
from proxy.engines.base import Pages, Scrape, Told

_REFUSALS = frozenset({400, 404, 422, 500, 501})
"""400 by the book; validation layers answer 422, and some servings wrap the engine's ValueError in a 500."""
_NOT_WITH_DRAFTS = re.compile(
    r"(?:not|n't|un|in|dis)\s?(?:yet\s|currently\s|be\s)*(?:support|compatib|allow|implement|combin|us(?:ed|e)\b)"
    r"[^.]{0,120}(?:speculat|spec[ _-]dec|draft)"
    r"|(?:speculat|spec[ _-]dec|draft)[^.]{0,120}"
    r"(?:not|n't|un|in|dis)\s?(?:yet\s|currently\s|be\s)*(?:support|compatib|allow|implement|combin)",
    re.IGNORECASE,
)
_NAMED: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), features)
    for pattern, features in (
        (r"\bmin_p\b|\bmin-p\b", ("min_p",)),
        (r"\blogit[_ ]bias\b", ("logit_bias",)),
        (r"json[_ ]schema", ("json_schema",)),
        (r"json[_ ]object|json mode", ("json_object",)),
        (r"structured[_ ]output|guided|grammar|xgrammar|regex|ebnf", ("grammar", "json_schema", "json_object")),
        (r"\b(?:top_|prompt_)?log[_ ]?probs?\b", ("logprobs",)),
        (r"\btool[_ ]choice\b", ("tool_choice",)),
        (r"\btools?\b", ("tools",)),
        (r"\bn ?> ?1\b|\bbest_of\b|\bbeam[_ ](?:search|width)\b", ("n",)),
        (r"\bstop[_ ](?:sequence|string|token)s?\b", ("stop",)),
    )
)
_LONGEST_ERROR_BYTES = 65_536
_NO_NAMES = exposition.Names()


def _tells_nothing(pages: Pages, scrape: Scrape | None) -> Told:
    return Told()


@dataclass(frozen=True)
class Habits:
    """An engine as a value; see ``proxy.engines.base.Engine`` for what the fields mean."""

    name: str
    names: exposition.Names = _NO_NAMES
    takes_usage: bool = False
    refuses: tuple[str, ...] = ()
    one_event_per_step: bool = False
    metrics_path: str = "/metrics"
    prefix: str = ""
    owners: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    telling: Callable[[Pages, Scrape | None], Told] = _tells_nothing

    def read_metrics(self, page: str) -> Scrape:
        """Fold a page; what cannot be read is None."""
        return exposition.read(page, self.names)

    def refused_feature(self, status: int, body: bytes, asked: tuple[str, ...] = ()) -> str | None:
        """The feature refused because the lane speculates, preferring one of ``asked``; else None."""
        if status not in _REFUSALS or len(body) > _LONGEST_ERROR_BYTES:
            return None
        message = _message(body)
        if not _NOT_WITH_DRAFTS.search(message):
            return None
        named = [feature for pattern, features in _NAMED if pattern.search(message) for feature in features]
        return next((feature for feature in named if feature in asked), None) or (named or ["other"])[0]

    def tell(self, pages: Pages, scrape: Scrape | None) -> Told:
        """What the pages say."""
        return self.telling(pages, scrape)


def _message(body: bytes) -> str:
    # Only the error's own words: validation errors echo the client's text beside them.
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    words = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return words if isinstance(words, str) else ""


def field(value: object, *path: str | int) -> object:
    """Walk into JSON; None as soon as a step is not there."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def whole(value: object) -> int | None:
    """A positive whole number, else None (JSON's true is not one)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def text(value: object) -> str | None:
    """A non-empty string, else None."""
    return value if isinstance(value, str) and value else None
