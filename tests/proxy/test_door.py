"""The door: paths, passports, and who is turned away before a body is read."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.door import APP, Clerk, Routes, cors_lines
from proxy.keys import Keys
from proxy.surfaces import SURFACES
from proxy.wire.headers import REQUEST_ID
from proxy.wire.inbound import Head, Passport
from tests.live.lanes import configured, digest

KEY = "sk-the-key-of-team-a"


def asked(headers: list[tuple[bytes, bytes]]) -> Head:
    return Head(b"POST", b"/v1/chat/completions", b"", headers)


def clerk(keys: dict[str, str] | None = None, settings: Mapping[str, object] | None = None) -> Clerk:
    return Clerk(configured(settings or {}), Keys(keys or {}))


def passport(door: Clerk, **headers: str) -> Passport:
    lines = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return door.passport(asked(lines))


# -- paths


@pytest.mark.parametrize("path", [path for surface in SURFACES for path in surface.paths])
@pytest.mark.parametrize("slash", ["", "/"])
def test_every_surface_answers_with_and_without_a_trailing_slash(path: str, slash: str) -> None:
    routes = Routes(())
    surface = routes.at(b"POST", f"{path}{slash}".encode())
    assert surface is not None
    assert path in surface.paths
    assert routes.is_surface(path + slash)
    assert routes.upstream(f"{path}{slash}".encode()).decode() in surface.paths


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions", "/v1/chat/completions/"])
def test_backends_are_asked_under_their_own_name_of_a_path(path: str) -> None:
    assert Routes(()).upstream(path.encode()) == b"/v1/chat/completions"


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"])
def test_other_methods_on_a_surface_are_for_the_control_plane_even_below_an_open_prefix(method: bytes) -> None:
    assert Routes(("/v1/*",)).at(method, b"/v1/chat/completions") is None


def test_unknown_paths_are_for_the_control_plane() -> None:
    routes = Routes(())
    for path in (
        b"/",
        b"",
        b"//",
        b"/v1",
        b"/v1/nothing",
        b"/v1/chat",
        b"/V1/CHAT/COMPLETIONS",
        b"/v1//chat/completions",
    ):
        assert routes.at(b"POST", path) is None
        assert routes.upstream(path) == path


def test_configured_paths_take_every_method_exactly_or_by_prefix() -> None:
    routes = Routes(("/v1/images/generations", "/v1/files/*"))
    for method in (b"GET", b"POST", b"DELETE"):
        for path in (b"/v1/images/generations", b"/v1/files/", b"/v1/files/abc/content"):
            surface = routes.at(method, path)
            assert surface is not None
            assert surface.name == "extra"
            assert routes.upstream(path) == path
    assert routes.at(b"POST", b"/v1/images/generations/more") is None
    assert routes.at(b"GET", b"/v1/files") is None
    assert routes.at(b"OPTIONS", b"/v1/files/abc") is None, "a preflight is answered here, without a key"


def test_a_surface_goes_before_a_prefix_that_covers_it() -> None:
    surface = Routes(("/v1/*",)).at(b"POST", b"/v1/chat/completions")
    assert surface is not None
    assert surface.name == "chat"


# -- who is asking


def test_without_keys_everybody_may_ask() -> None:
    door = clerk()
    told = passport(door, authorization="Bearer whatever")
    assert told.may_enter
    assert door.refusal(told, 10) is None
    assert told.app == "unnamed"


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({"authorization": f"Bearer {KEY}"}, True),
        ({"authorization": f"bearer {KEY}"}, True),
        ({"x_api_key": KEY}, True),
        ({"authorization": "Bearer other", "x_api_key": KEY}, True),
        ({"authorization": f"Basic {KEY}"}, False),
        ({"authorization": KEY}, False),
        ({"authorization": "Bearer "}, False),
        ({"x_api_key": ""}, False),
        ({}, False),
    ],
)
def test_with_keys_one_right_key_lets_in(headers: dict[str, str], may: bool) -> None:
    door = clerk({"team-a": digest(KEY)})
    told = passport(door, **headers)
    assert told.may_enter is may
    error = door.refusal(told, 10)
    assert (error is None) is may
    assert told.app == ("team-a" if may else "unnamed")
    if error is not None:
        assert (error.status, error.code) == (401, "invalid_api_key")


def test_a_remembered_head_is_asked_for_its_key_again_when_the_keys_change(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"team-a {digest(KEY)}\n")
    keys = Keys({}, file)
    door = Clerk(configured({}), keys)
    head = Head(b"POST", b"/v1/chat/completions", b"", [(b"authorization", f"Bearer {KEY}".encode())])
    assert door.recall(head) is door.recall(head)
    assert door.recall(head).app == "team-a"
    file.write_text("# nobody any more\n")
    assert keys.reload()
    assert not door.recall(head).may_enter


def test_the_name_of_the_key_goes_before_what_the_client_calls_itself() -> None:
    told = passport(clerk({"team-a": digest(KEY)}), x_api_key=KEY, x_draftlane_app="letters", user_agent="curl/8")
    assert told.app == "team-a/letters"
    told = passport(clerk({"team-a": digest(KEY)}), x_api_key=KEY, user_agent="curl/8")
    assert told.app == "team-a"


def test_settings_of_a_key_hold_for_each_of_its_applications_unless_one_has_its_own() -> None:
    door = clerk(
        {"team-a": digest(KEY)}, {"apps": {"team-a": {"lane": "plain"}, "team-a/code": {"lane": "speculative"}}}
    )
    for header, lane in (("letters", "plain"), ("code", "speculative")):
        told = passport(door, x_api_key=KEY, x_draftlane_app=header)
        assert told.forced_lane == lane


def test_a_body_above_the_limit_is_turned_away_by_its_announced_length() -> None:
    door = clerk(settings={"server": {"max_body_bytes": 1000}})
    told = passport(door)
    assert door.refusal(told, 1000) is None
    assert door.refusal(told, None) is None
    error = door.refusal(told, 1001)
    assert error is not None
    assert (error.status, "1000" in error.message) == (413, True)


@pytest.mark.parametrize(
    ("agent", "app"),
    [
        ("OpenAI/Python 3.5.0", "openai/python"),
        ("AsyncOpenAI/Python 3.6.1", "asyncopenai/python"),
        ("OpenAI/JS 6.1.0", "openai/js"),
        ("curl/8.5.0", "curl"),
        ("python-httpx/0.28.1", "python-httpx"),
        ("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101", "mozilla"),
        ("codex_cli_rs/0.1", "codex_cli_rs"),
        ("claude-cli/2.0 (external, cli)", "claude-cli"),
        ("\xe9diteur/1.0", "unnamed"),
        ("<script>", "unnamed"),
        ("", "unnamed"),
        (" ", "unnamed"),
        ("/", "unnamed"),
    ],
)
def test_the_product_in_user_agent_names_the_application_without_its_version(agent: str, app: str) -> None:
    assert passport(clerk(), user_agent=agent).app == app


def test_versions_of_one_client_are_one_application() -> None:
    names = {passport(clerk(), user_agent=f"tool/{n}.0.{n}").app for n in range(50)}
    assert names == {"tool"}


@pytest.mark.parametrize("name", ["", "-a", "a b", 'a"b', "a\tb", "a" * 64, "ü", "a\r\nb"])
def test_a_name_that_is_no_name_is_passed_over(name: str) -> None:
    assert passport(clerk(), x_draftlane_app=name, user_agent="curl/8").app == "curl"


# -- what else the headers say


@pytest.mark.parametrize(
    ("said", "lane"),
    [("speculative", "speculative"), ("plain", "plain"), (" Plain ", "plain"), ("fast", None), ("", None)],
)
def test_a_lane_can_be_asked_for(said: str, lane: str | None) -> None:
    assert passport(clerk(), x_draftlane_lane=said).forced_lane == lane


@pytest.mark.parametrize(
    ("said", "tokens"),
    [("300", 300), (" 300 ", 300), ("0", 0), ("-1", None), ("1e3", None), ("", None), ("many", None),
     ("99999999999999999999", 10_000_000), (" " * 14 + "7", 7)],
)  # fmt: skip
def test_an_output_length_can_be_announced(said: str, tokens: int | None) -> None:
    assert passport(clerk(), x_draftlane_expected_output_tokens=said).expected_output_tokens == tokens


APPS = {"apps": {"rag": {"lane": "plain", "expected_output_tokens": 40}}}


def test_settings_of_an_application_hold_where_the_client_says_nothing() -> None:
    told = passport(clerk(settings=APPS), x_draftlane_app="rag")
    assert (told.forced_lane, told.expected_output_tokens) == ("plain", 40)
    told = passport(clerk(settings=APPS), x_draftlane_app="other")
    assert (told.forced_lane, told.expected_output_tokens) == (None, None)


def test_what_the_client_says_goes_before_the_settings_of_its_application() -> None:
    told = passport(
        clerk(settings=APPS),
        x_draftlane_app="rag",
        x_draftlane_lane="speculative",
        x_draftlane_expected_output_tokens="900",
    )
    assert (told.forced_lane, told.expected_output_tokens) == ("speculative", 900)


def test_nonsense_in_a_header_is_as_if_it_was_not_said() -> None:
    told = passport(
        clerk(settings=APPS),
        x_draftlane_app="rag",
        x_draftlane_lane="fastest",
        x_draftlane_expected_output_tokens="some",
    )
    assert (told.forced_lane, told.expected_output_tokens) == ("plain", 40)


def test_a_request_id_is_kept_where_it_is_one_and_made_where_not() -> None:
    door = clerk()
    assert passport(door, x_request_id="abc-1/2:3").wanted_id == "abc-1/2:3"
    assert {passport(door, x_request_id=said).wanted_id for said in ("", "a b", "x" * 129, "\xe9", "a\nb")} == {None}
    made = {door.new_id() for _ in range(5)}
    assert len(made) == 5
    assert all(REQUEST_ID.fullmatch(one.encode()) for one in made)


HEADERS = [
    b"authorization",
    b"x-api-key",
    b"user-agent",
    b"x-request-id",
    b"x-draftlane-app",
    b"x-draftlane-lane",
    b"x-draftlane-expected-output-tokens",
    b"origin",
]


@given(st.lists(st.tuples(st.sampled_from(HEADERS), st.binary(max_size=140))))
@example([(b"x-draftlane-expected-output-tokens", b"              7")])
@example([(b"x-draftlane-expected-output-tokens", b"\x85\xa07")])
def test_no_header_breaks_the_passport_or_gets_into_it_unseen(headers: list[tuple[bytes, bytes]]) -> None:
    told = DOOR.passport(asked(headers))
    assert told.may_enter
    assert told.wanted_id is None or REQUEST_ID.fullmatch(told.wanted_id.encode())
    assert APP.fullmatch(told.app.encode())
    assert told.forced_lane in (None, "speculative", "plain")
    assert told.expected_output_tokens is None or 0 <= told.expected_output_tokens <= 10_000_000
    assert told.origin is None


DOOR = clerk()


# -- pages of other origins


def test_only_configured_origins_may_read_answers() -> None:
    door = clerk(settings={"server": {"cors_origins": ["https://chat.example"]}})
    assert passport(door, origin="https://chat.example").origin == b"https://chat.example"
    assert passport(door, origin="https://evil.example").origin is None
    assert passport(clerk(), origin="https://chat.example").origin is None
    assert passport(clerk(settings={"server": {"cors_origins": ["*"]}}), origin="null").origin == b"null"


def test_an_allowed_page_may_also_read_what_was_decided() -> None:
    assert cors_lines(None) == []
    lines = b"".join(cors_lines(b"https://chat.example")).decode().split("\r\n")
    assert "access-control-allow-origin: https://chat.example" in lines
    assert "vary: origin" in lines
    exposed = next(line for line in lines if line.startswith("access-control-expose-headers:"))
    for name in ("x-request-id", "x-draftlane-lane", "x-draftlane-class", "x-draftlane-backend", "x-draftlane-reason"):
        assert name in exposed
