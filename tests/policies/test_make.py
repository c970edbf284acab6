"""Records made without their constructor are what it would have made."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies.choice import Choice
from policies.decision import Decision
from policies.events import Arrived, Dispatched, Finished, FirstToken
from policies.lengths import Prediction
from policies.lesson import Lesson
from policies.make import make
from proxy.meter.base import Facts

ROOT = Path(__file__).parents[2]
KINDS = {
    kind.__name__: kind
    for kind in (Arrived, Choice, Decision, Dispatched, Facts, Finished, FirstToken, Lesson, Prediction)
}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every ``make(…)`` of the project, with where it stands."""
    for path in sorted((*ROOT.glob("policies/*.py"), *ROOT.glob("proxy/**/*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "make":
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


@pytest.mark.parametrize(("place", "call"), list(calls()))
def test_every_field_is_given_for_nothing_fills_in_a_default(place: str, call: ast.Call) -> None:
    kind, *fields = call.args
    assert isinstance(kind, ast.Name)
    assert not call.keywords
    assert not any(isinstance(field, ast.Starred) for field in fields)
    assert len(fields) == len(KINDS[kind.id]._fields), place


def test_a_made_record_is_the_one_its_constructor_makes() -> None:
    made = make(Dispatched, 1.0, "a", "plain-1")
    assert made == Dispatched(1.0, "a", "plain-1")
    assert type(made) is Dispatched
    assert made._replace(backend="b").backend == "b"


def test_there_are_calls_to_look_at() -> None:
    assert {call.args[0].id for _, call in calls() if isinstance(call.args[0], ast.Name)} == set(KINDS)
