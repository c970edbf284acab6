"""``draftlane check --live`` against backends that answer over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import typer

from proxy.commands.check import Asked, ask, check, differences, faults
from proxy.config import Backend, from_urls
from proxy.engines.base import Discovered

PLAIN_PAGE = "vllm:num_requests_running 0\n"
SPECULATING_PAGE = PLAIN_PAGE + "vllm:spec_decode_num_drafts_total 3\n"


def models(*names: str, context: int = 4096) -> str:
    return json.dumps({"data": [{"id": name, "owned_by": "vllm", "max_model_len": context} for name in names]})


@asynccontextmanager
async def backend(pages: dict[str, str], socket: Path | None = None) -> AsyncIterator[str]:
    """A backend that answers these paths, on a free port or a Unix socket; yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, body = ("200 OK", pages[path]) if path in pages else ("404 Not Found", "{}")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    if socket is None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    else:
        server = await asyncio.start_unix_server(answer, socket)
        url = f"unix:{socket}"
    async with server:
        yield url


async def asked(speculative: dict[str, str], plain: dict[str, str]) -> list[Asked]:
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(backend(pages)) for pages in (speculative, plain)]
        return await ask(from_urls(urls[:1], urls[1:]))


async def test_twins_in_their_lanes_are_fine() -> None:
    said = await asked(
        {"/v1/models": models("m"), "/metrics": SPECULATING_PAGE}, {"/v1/models": models("m"), "/metrics": PLAIN_PAGE}
    )
    assert [a.found.speculative for a in said if a.found] == [True, False]
    assert list(faults(said)) == []
    assert list(differences(said)) == []


async def test_swapped_lanes_are_faults() -> None:
    said = await asked(
        {"/v1/models": models("m"), "/metrics": PLAIN_PAGE}, {"/v1/models": models("m"), "/metrics": SPECULATING_PAGE}
    )
    assert list(faults(said)) == [
        "speculative-1: it does not speculate, but is in the speculative lane",
        "plain-1: it speculates, but is in the plain lane",
    ]


async def test_lanes_that_are_no_twins_are_warned_of() -> None:
    said = await asked(
        {"/v1/models": models("m", "lora"), "/metrics": SPECULATING_PAGE},
        {"/v1/models": models("m", context=8192)},
    )
    assert list(differences(said)) == [
        "only the speculative lane serves lora: such requests have no choice",
        "the lanes have different context lengths: 4096 (speculative) against 8192 (plain)",
        "plain-1: no metrics page; acceptance is learnt from its answers alone",
    ]


async def test_a_unix_socket_is_asked_like_any_other(tmp_path: Path) -> None:
    async with backend({"/v1/models": models("m"), "/metrics": PLAIN_PAGE}, tmp_path / "s") as url:
        (said,) = await ask(from_urls([], [url]))
    assert said.found is not None
    assert said.found.models == ("m",)


async def test_a_backend_that_is_away_is_a_fault(tmp_path: Path) -> None:
    (said,) = await ask(from_urls([], [f"unix:{tmp_path}/nobody"]))
    assert next(faults([said])).startswith("plain-1: no answer: ")


def test_renamed_models_count_under_their_name_here() -> None:
    found = Discovered("vllm", ("/weights/m",), speculative=None, metrics=True)
    renamed = Backend(url="http://a", lane="speculative", name="a", models=("m",), renames={"m": "/weights/m"})
    missing = Backend(url="http://a", lane="plain", name="b", models=("m",))
    assert list(faults([Asked(renamed, found), Asked(missing, found)])) == ["b: it does not serve m"]
    assert list(differences([Asked(renamed, found), Asked(missing, found)])) == []


def test_the_file_alone_needs_no_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "draftlane.toml"
    path.write_text('[[backends]]\nurl = "http://a"\nlane = "plain"')
    with pytest.raises(typer.Exit) as left:
        check(path, live=False, as_json=False)
    assert left.value.exit_code == 0
    assert "sound. 0 speculative and 1 plain, policy break-even." in " ".join(capsys.readouterr().out.split())


def test_a_live_fault_ends_with_1_and_is_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "draftlane.toml"
    path.write_text(f'[[backends]]\nurl = "unix:{tmp_path}/nobody"\nlane = "plain"')
    with pytest.raises(typer.Exit) as left:
        check(path, live=True, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (left.value.exit_code, told["ok"], told["backends"][0]["found"]) == (1, False, None)


def test_no_lane_no_comparison() -> None:
    assert list(differences([])) == []
