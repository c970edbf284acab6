"""An alarm is told once when it begins and once when it is over."""

import logging

import pytest

from policies.events import Joined, Left, Probed
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings
from proxy.alarming import Alarming


def test_a_backend_that_fails_and_recovers_makes_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    fleet, alarming = Fleet(PolicySettings()), Alarming()
    advance(fleet, Joined(1.0, "a", "plain"))
    with caplog.at_level(logging.INFO, "draftlane.alarm"):
        alarming.look(fleet, 1.0)
        assert caplog.messages == []
        for at in (2.0, 3.0, 4.0):
            advance(fleet, Probed(at, "a", ok=False))
        alarming.look(fleet, 4.0)
        alarming.look(fleet, 5.0)
        assert [line.partition(":")[0] for line in caplog.messages] == ["alarm breaker-open"]
        assert "a failed 3 times in a row" in caplog.messages[0]
        advance(fleet, Left(6.0, "a"))
        alarming.look(fleet, 6.0)
    assert caplog.messages[1:] == ["alarm breaker-open is over: a"]
