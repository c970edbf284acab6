"""One answer and one stream, over both server forms."""

from tests.scripted.backend import ScriptedBackend
from tests.scripted.client import CHAT, CHAT_STREAM, connected, post
from tests.scripted.rig import config_for, running
from tests.scripted.scripts import ANSWER, STREAM, answer, stream


async def test_an_answer_comes_back_byte_for_byte(form: str) -> None:
    async with (
        ScriptedBackend(answer()).listening() as backend,
        running(config_for({"plain": backend.url}), form) as rig,
    ):
        async with connected(rig.port) as client:
            got = await client.ask(post(CHAT))
        assert (got.status, got.body, got.complete) == (200, ANSWER, True)
        assert backend.requests[0].body == CHAT
        await rig.at_rest()


async def test_a_stream_comes_back_byte_for_byte(form: str) -> None:
    async with (
        ScriptedBackend(stream()).listening() as backend,
        running(config_for({"plain": backend.url}), form) as rig,
    ):
        async with connected(rig.port) as client:
            got = await client.ask(post(CHAT_STREAM))
        assert (got.status, got.body, got.complete) == (200, STREAM, True)
        await rig.at_rest()
