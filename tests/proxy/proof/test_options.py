"""Ctrl-C before anything was measured."""

import asyncio
import os
import signal

import pytest
import typer

from proxy.proof.options import INTERRUPTED, interruptible


async def test_a_stop_before_the_first_figure_is_an_exit_and_no_traceback() -> None:
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)

    with pytest.raises(typer.Exit) as stopped:
        await interruptible(work())
    assert stopped.value.exit_code == INTERRUPTED


async def test_a_stop_lets_the_work_report_what_it_has() -> None:
    async def work() -> str:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "half"
        return "whole"

    assert await interruptible(work()) == "half"


async def test_work_that_is_not_stopped_ends_by_itself() -> None:
    async def work() -> str:
        return "whole"

    assert await interruptible(work()) == "whole"
