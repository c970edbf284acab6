"""On the loop of production; on both server forms where a test asks for ``form``."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.scripted.rig import FORMS


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, as ``serve`` runs."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Which server protocol."""
    return str(request.param)
