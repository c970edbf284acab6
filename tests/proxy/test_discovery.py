"""What a backend says of itself, asked over a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.discovery import BackendUnreachableError, discover, root
from proxy.engines.base import Discovered

Pages = Mapping[str, object]
"""Path → JSON, text, bytes; ``None`` hangs. Anything else is a 404."""


def _head(status: str, length: int) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n".encode()


def _speaker(
    pages: Pages, heard: list[bytes]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        heard.append(request)
        path = request.split(b" ")[1].decode()
        page = pages.get(path, pages.get("*", b""))
        if page is None:
            await reader.read()
        elif isinstance(page, bytes):
            writer.write(
                (_head("200 OK", len(page)) + page) if path in pages or "*" in pages else _head("404 Not Found", 0)
            )
        else:
            body = (page if isinstance(page, str) else json.dumps(page)).encode("utf-8", "surrogatepass")
            writer.write(_head("200 OK", len(body)) + body)
        writer.close()

    return speak


@asynccontextmanager
async def backend(pages: Pages, heard: list[bytes] | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(_speaker(pages, [] if heard is None else heard), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def found(pages: Pages, limit_seconds: float = 5.0) -> Discovered:
    async with backend(pages) as url, httpx.AsyncClient() as client:
        return await discover(client, url, {}, limit_seconds)


VLLM_CARD: dict[str, object] = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 2048}
VLLM_METRICS = 'vllm:num_requests_running{engine="0"} 0.0\n'
VLLM_COUNTERS = (
    VLLM_METRICS
    + "vllm:spec_decode_num_drafts_total 0.0\n"
    + "".join(
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}} 0.0\n' for position in range(5)
    )
)


async def test_a_plain_vllm_is_told_by_the_absence_of_counters() -> None:
    told = await found(
        {"/v1/models": {"data": [VLLM_CARD]}, "/metrics": VLLM_METRICS, "/version": {"version": "0.32.0"}}
    )
    assert told == Discovered(
        engine="vllm",
        models=("m",),
        speculative=False,
        max_context_tokens=2048,
        metrics=True,
        version="0.32.0",
        cards=(VLLM_CARD,),
    )


async def test_a_speculating_vllm_shows_its_depth_in_the_positions_before_anything_was_drafted() -> None:
    told = await found({"/v1/models": {"data": [VLLM_CARD]}, "/metrics": VLLM_COUNTERS})
    assert (told.speculative, told.depth, told.method, told.drafts_always) == (True, 5, None, None)


async def test_a_vllm_in_development_mode_tells_method_and_batch_size() -> None:
    config = {
        "model_config": {"max_model_len": 2048},
        "scheduler_config": {"max_num_seqs": 4},
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 5},
    }
    told = await found(
        {
            "/v1/models": {"data": [VLLM_CARD]},
            "/metrics": VLLM_COUNTERS,
            "/server_info?config_format=json": {"vllm_config": config},
        }
    )
    assert (told.speculative, told.depth, told.method, told.drafts_always, told.max_requests) == (
        True,
        5,
        "ngram",
        False,
        4,
    )
    plain = {
        "/v1/models": {"data": [VLLM_CARD]},
        "/server_info?config_format=json": {"vllm_config": config | {"speculative_config": None}},
    }
    assert (await found(plain)).speculative is False


async def test_a_vllm_without_a_metrics_page_does_not_tell() -> None:
    told = await found({"/v1/models": {"data": [VLLM_CARD]}})
    assert (told.engine, told.speculative, told.metrics) == ("vllm", None, False)


@pytest.mark.parametrize("speculative", [True, False])
async def test_llamacpp_is_believed_in_its_slots_not_in_its_props(speculative: bool) -> None:
    card: dict[str, object] = {
        "id": "/models/a.gguf",
        "aliases": ["gemma"],
        "owned_by": "llamacpp",
        "meta": {"n_ctx": 4096},
    }
    told = await found(
        {
            "/v1/models": {"data": [card]},
            "/metrics": "llamacpp:requests_processing 0\nllamacpp:spec_decode_num_drafts_total 0\n",
            "/props": {
                "total_slots": 2,
                "build_info": "b1",
                "default_generation_settings": {"params": {"speculative.types": "none"}},
            },
            "/slots": [
                {"id": 0, "n_ctx": 4096, "speculative": speculative},
                {"id": 1, "n_ctx": 4096, "speculative": speculative},
            ],
        }
    )
    assert told == Discovered(
        engine="llamacpp",
        models=("/models/a.gguf", "gemma"),
        speculative=speculative,
        max_context_tokens=4096,
        max_requests=2,
        metrics=True,
        version="b1",
        cards=(card,),
    )


async def test_llamacpp_without_its_optional_endpoints_is_still_recognised_by_its_props() -> None:
    told = await found({"/v1/models": {"data": [{"id": "a"}]}, "/props": {"total_slots": 3}})
    assert (told.engine, told.speculative, told.max_requests, told.metrics) == ("llamacpp", None, 3, False)


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
async def test_sglang_tells_under_either_name_of_its_page(path: str) -> None:
    info = {
        "version": "0.5.23",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 4,
        "internal_states": [
            {"effective_max_running_requests_per_dp": 48},
            {"effective_max_running_requests_per_dp": 48},
        ],
    }
    card = {"id": "m", "owned_by": "sglang", "max_model_len": 32768}
    told = await found({"/v1/models": {"data": [card]}, "/metrics": "sglang:num_running_reqs 0\n", path: info})
    assert (told.engine, told.speculative, told.depth, told.method) == ("sglang", True, 3, "EAGLE3")
    assert (told.max_requests, told.max_context_tokens, told.drafts_always, told.version) == (96, 32768, True, "0.5.23")
    told = await found(
        {"/v1/models": {"data": [card]}, path: {**info, "speculative_algorithm": None, "internal_states": None}}
    )
    assert (told.speculative, told.depth, told.max_requests) == (False, None, None)


async def test_sglang_ngram_counts_its_drafts_without_the_root() -> None:
    info = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 12, "max_running_requests": 8}
    told = await found({"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}, "/server_info": info})
    assert (told.depth, told.drafts_always, told.max_requests) == (11, False, 8)


async def test_trtllm_has_its_prometheus_page_elsewhere() -> None:
    told = await found(
        {
            "/v1/models": {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]},
            "/metrics": [{"iterLatencyMS": 3}],
            "/prometheus/metrics": "trtllm_num_requests_running 0\ntrtllm_spec_decode_num_draft_tokens_total 7\n",
            "/version": {"version": "1.3.0"},
        }
    )
    assert (told.engine, told.metrics, told.speculative, told.version) == ("trtllm", True, True, "1.3.0")


async def test_tgi_is_recognised_by_its_metrics_and_asked_for_its_info() -> None:
    told = await found(
        {
            "/v1/models": {"data": [{"id": "m", "owned_by": "m"}]},
            "/metrics": "# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n",
            "/info": {"version": "3.3.7", "max_total_tokens": 4096, "max_batch_size": None},
        }
    )
    assert (told.engine, told.version, told.max_context_tokens, told.max_requests, told.speculative) == (
        "tgi",
        "3.3.7",
        4096,
        None,
        None,
    )


async def test_a_server_of_another_kind_is_unknown_and_its_models_are_kept() -> None:
    told = await found({"/v1/models": {"data": [{"id": "a"}, {"id": "b"}, {"id": 7}, "c"]}})
    assert (told.engine, told.models, told.speculative) == ("unknown", ("a", "b"), None)
    assert [card["id"] for card in told.cards] == ["a", "b"]


async def test_the_key_and_the_prefix_of_the_address_are_used_for_every_question() -> None:
    heard: list[bytes] = []
    async with backend({"/llm/v1/models": {"data": [VLLM_CARD]}}, heard) as url, httpx.AsyncClient() as client:
        told = await discover(client, url + "/llm/v1/", {"authorization": "Bearer k"})
    assert told.models == ("m",)
    assert all(b"authorization: Bearer k\r\n" in request.lower().replace(b"bearer", b"Bearer") for request in heard)
    assert all(request.startswith(b"GET /llm/") for request in heard)


async def test_one_question_that_hangs_does_not_spoil_the_others() -> None:
    told = await found(
        {"/v1/models": {"data": [VLLM_CARD]}, "/metrics": VLLM_COUNTERS, "/props": None}, limit_seconds=0.3
    )
    assert (told.engine, told.models, told.depth) == ("vllm", ("m",), 5)


async def test_a_backend_that_refuses_connections_is_unreachable() -> None:
    with socket.socket() as taken:  # and not listened at, so that nobody else's server is found there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with httpx.AsyncClient() as client:
            with pytest.raises(BackendUnreachableError, match=url) as caught:
                await discover(client, url)
    assert caught.value.url == url


async def test_a_backend_that_never_answers_is_unreachable_within_the_limit() -> None:
    async with backend({"*": None}) as url, httpx.AsyncClient() as client:
        with pytest.raises(BackendUnreachableError, match="no answer within"):
            await discover(client, url, {}, 0.2)


@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "http://", "ftp://a"])
async def test_an_address_that_is_none_is_unreachable_rather_than_a_crash(url: str) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(BackendUnreachableError):
            await discover(client, url)


async def test_a_backend_that_says_only_404_is_reachable() -> None:
    assert await found({}) == Discovered(engine="unknown", models=(), speculative=None)


async def test_an_answer_that_does_not_end_is_not_read_to_the_end() -> None:
    told = await found({"/v1/models": {"data": [VLLM_CARD]}, "/metrics": b"x" * (9 * 1024 * 1024)})
    assert (told.engine, told.metrics) == ("vllm", False)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "data",
                    "id",
                    "owned_by",
                    "aliases",
                    "meta",
                    "n_ctx",
                    "speculative",
                    "vllm_config",
                    "total_slots",
                    "speculative_config",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_PATHS = [
    "/v1/models",
    "/metrics",
    "/version",
    "/props",
    "/slots",
    "/server_info?config_format=json",
    "/server_info",
    "/info",
]
_ODD = (
    _JSON.filter(lambda value: value is not None)
    | st.binary(max_size=30)
    | st.sampled_from([VLLM_METRICS, "sglang:a 1\n", "tgi_a 1\n"])
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(_PATHS), _ODD))
def test_odd_answers_never_raise(pages: dict[str, object]) -> None:
    assert isinstance(asyncio.run(found(pages)), Discovered)


def test_addresses_are_taken_with_and_without_version() -> None:
    assert root("http://a:8000/v1/") == root("http://a:8000/") == root("http://a:8000") == "http://a:8000"
    assert root("http://a/v1x") == "http://a/v1x"
