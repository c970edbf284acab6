"""From a backend's settings to where the relay connects and what its heads carry."""

from typing import Any

import pytest

from proxy.backends import Backend, build
from proxy.engines.base import Discovered
from tests.live.lanes import configured


def backend(url: str = "http://engine:8000", forward_client_key: bool = False, **settings: Any) -> Backend:
    said = [{"name": "one", "url": url, "lane": "plain", **settings}]
    return build(configured({"backends": said, "forward_client_key": forward_client_key}))["one"]


@pytest.mark.parametrize(
    ("url", "host", "port", "host_header", "base", "tls"),
    [
        ("http://engine:8000", "engine", 8000, b"engine:8000", b"", False),
        ("http://engine", "engine", 80, b"engine", b"", False),
        ("http://engine:8000/v1/", "engine", 8000, b"engine:8000", b"", False),
        ("http://engine:8000/team/qwen/v1", "engine", 8000, b"engine:8000", b"/team/qwen", False),
        ("https://engine.example", "engine.example", 443, b"engine.example", b"", True),
        ("https://engine.example:8443/x", "engine.example", 8443, b"engine.example:8443", b"/x", True),
        ("http://[::1]:8000", "::1", 8000, b"[::1]:8000", b"", False),
        ("http://10.0.0.7:8000", "10.0.0.7", 8000, b"10.0.0.7:8000", b"", False),
    ],
)
def test_the_address_follows_the_url(
    url: str, host: str, port: int, host_header: bytes, base: bytes, tls: bool
) -> None:
    made = backend(url)
    address = made.pool.address
    assert (address.host, address.port, address.tls is not None, address.path) == (host, port, tls, None)
    assert (made.upstream.host, made.upstream.base) == (host_header, base)


@pytest.mark.parametrize("url", ["unix:/run/engine.sock", "unix:///run/engine.sock"])
def test_a_unix_socket_is_a_path(url: str) -> None:
    made = backend(url)
    assert made.pool.address.path == "/run/engine.sock"
    assert made.upstream.host == b"localhost"


CLIENTS = {b"authorization", b"x-api-key"}


def test_the_clients_key_never_goes_on_by_itself() -> None:
    assert backend().upstream.replaced >= CLIENTS
    assert backend().upstream.extra == b""


def test_the_backends_own_key_and_headers_go_with_every_request() -> None:
    made = backend(api_key="sk-engine", headers={"X-Team": "ml"})
    assert made.upstream.extra == b"authorization: Bearer sk-engine\r\nx-team: ml\r\n"
    assert made.upstream.replaced >= {*CLIENTS, b"x-team"}


def test_a_forwarded_client_key_goes_on_only_where_the_backend_has_none() -> None:
    assert not backend(forward_client_key=True).upstream.replaced & CLIENTS
    assert backend(forward_client_key=True, api_key="sk-engine").upstream.replaced >= CLIENTS


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_a_configured_authorization_header_is_a_key_too(name: str) -> None:
    made = backend(forward_client_key=True, headers={name: "Basic abc"})
    assert made.upstream.extra == b"authorization: Basic abc\r\n"
    assert made.upstream.replaced >= CLIENTS


def test_a_configured_host_goes_instead_of_the_urls_and_not_beside_it() -> None:
    made = backend("http://10.0.0.7:8000", headers={"Host": "engine.example"})
    assert (made.upstream.host, made.upstream.extra) == (b"engine.example", b"")


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection", "x-request-id", "Expect"])
def test_headers_that_frame_a_request_are_not_the_operators(name: str) -> None:
    with pytest.raises(ValueError, match="is written by the gateway itself"):
        backend(headers={name: "1"})


def test_keys_are_in_no_representation() -> None:
    made = backend(api_key="sk-engine-secret", headers={"x-team": "ml-secret"})
    assert "secret" not in repr(made.settings)


def test_the_engine_is_learnt_unless_it_is_configured() -> None:
    found = Discovered("vllm", ("qwen",), True)
    asked, told = backend(), backend(engine="sglang", takes_usage=False)
    assert (asked.engine.name, asked.takes_usage) == ("unknown", False)
    asked.learn(found)
    told.learn(found)
    assert (asked.engine.name, asked.takes_usage) == ("vllm", True)
    assert (told.engine.name, told.takes_usage) == ("sglang", False)


def test_backends_keep_the_order_of_the_configuration_and_get_names() -> None:
    lanes = ("plain", "speculative", "plain")
    config = configured({"backends": [{"url": f"http://e{n}", "lane": lane} for n, lane in enumerate(lanes)]})
    assert [(name, one.lane) for name, one in build(config).items()] == [
        ("plain-1", "plain"),
        ("speculative-1", "speculative"),
        ("plain-2", "plain"),
    ]
