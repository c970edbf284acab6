"""The hot path may become cheaper, and not dearer by accident."""

import pytest

from tests.wire_cost.counting import Counts, allowed, counted

SLACK = 1.05
"""Learning takes turns (a refit every so many requests), so counts of 100 requests differ a little."""


@pytest.fixture(scope="module")
def now() -> Counts:
    """Counted once."""
    return counted()


@pytest.mark.parametrize("what", ["request", "event"])
@pytest.mark.parametrize("kind", ["python", "c"])
def test_nothing_was_added_to_the_way_of_a_byte(now: Counts, what: str, kind: str) -> None:
    calls, limit = getattr(getattr(now, what), kind), allowed()[what][kind]
    assert calls <= limit * SLACK, (
        f"Each {what} makes {calls} calls of functions in {kind}; {limit} were allowed (tests/wire_cost/allowed.json). "
        "Find what was added (called most in a request: " + ", ".join(now.most) + ") and take it off the hot path. "
        "If it is worth its price on every request, say why in the commit and write the new count down: "
        "python -m tests.wire_cost.counting --write"
    )


def test_a_running_stream_keeps_nothing_of_its_events(now: Counts) -> None:
    """Whatever was allocated for an event is free again when the next one comes; the slack is for arenas of the pools."""
    assert now.kept_blocks < 0.5
