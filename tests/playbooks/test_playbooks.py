"""Journal excerpts in, decisions out.

Each file is a journal as a gateway writes it, with lines ``["Expect", request, lane, reason]`` behind the requests that
matter; readers of journals pass over words they do not know, so every excerpt can also be given to ``draftlane replay``
and ``draftlane explain``.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies.decide import decide
from policies.decision import Decision
from policies.events import Arrived
from policies.fleet import Fleet, advance
from proxy.journal import Opened, parse
from proxy.replaying import lives

EXCERPTS = sorted(Path(__file__).parent.glob("*.jsonl"))


def played(excerpt: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Pairs of what is expected and what is decided."""
    fleet = Fleet(next(iter(lives(excerpt))).settings(None))
    told: dict[str, list[str]] = {}
    for line in excerpt.read_bytes().splitlines(keepends=True):
        entry = parse(line)
        if entry is None:
            word, request, *expected = json.loads(line)
            assert word == "Expect"
            yield [request, *expected], [request, *told[request]]
        elif not isinstance(entry, Opened):
            advance(fleet, entry)  # type: ignore[arg-type]  # excerpts hold events only
            if isinstance(entry, Arrived):
                verdict = decide(fleet, entry)
                decided = isinstance(verdict, Decision)
                told[entry.id] = [verdict.lane, verdict.reason] if decided else [type(verdict).__name__, ""]  # type: ignore[union-attr]  # a Decision there


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda path: path.stem)
def test_what_is_decided_is_what_is_expected(excerpt: Path) -> None:
    pairs = list(played(excerpt))
    assert pairs
    assert [decided for _, decided in pairs] == [expected for expected, _ in pairs]
