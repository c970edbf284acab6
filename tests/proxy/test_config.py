"""The configuration file: what it may say, and how its faults are told."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.settings import PolicySettings
from proxy.config import Config, ConfigError, from_urls, load, schema, with_server
from proxy.config_sections import Backend

TWO_LANES = """
[[backends]]
url = "http://a:8000"
lane = "speculative"

[[backends]]
url = "http://b:8000"
lane = "plain"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "draftlane.toml"
    path.write_text(text)
    return path


def faults(folder: Path, text: str) -> list[str]:
    """The faults of a file, without its path."""
    path = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert all(fault.startswith(f"{path}: ") for fault in caught.value.faults)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


def test_two_backends_are_enough(tmp_path: Path) -> None:
    config = load(written(tmp_path, TWO_LANES))
    assert [(b.name, b.lane, b.url) for b in config.backends] == [
        ("speculative-1", "speculative", "http://a:8000"),
        ("plain-1", "plain", "http://b:8000"),
    ]
    assert config.policy == PolicySettings()
    assert config.timeouts.connect_seconds == 2.0
    assert config.server.max_body_bytes == 128 * 1024 * 1024


def test_the_command_line_gives_the_same_as_the_file(tmp_path: Path) -> None:
    assert from_urls(["http://a:8000"], ["http://b:8000"]) == load(written(tmp_path, TWO_LANES))


def test_a_backend_alone_is_enough() -> None:
    assert [b.name for b in from_urls([], ["http://b:8000"]).backends] == ["plain-1"]


def test_server_settings_come_from_the_command_line_too() -> None:
    assert from_urls(["http://a"], [], {"host": "0.0.0.0", "port": 0}).server.port == 0
    with pytest.raises(ConfigError, match=r"server\.port: should be less than or equal to 65535, not 70000"):
        from_urls(["http://a"], [], {"port": 70000})


def test_a_file_can_be_overruled_by_the_command_line(tmp_path: Path) -> None:
    config = load(written(tmp_path, TWO_LANES + "[server]\nport = 1\ngrace_seconds = 5.0"))
    changed = with_server(config, {"port": 2})
    assert (changed.server.port, changed.server.grace_seconds, config.server.port) == (2, 5.0, 1)
    with pytest.raises(ConfigError, match=r"^command line: port: should be less than or equal to 65535, not 70000$"):
        with_server(config, {"port": 70000})


def test_made_names_keep_clear_of_given_ones() -> None:
    config = Config(
        backends=(
            Backend(url="http://a", lane="plain", name="plain-2"),
            Backend(url="http://b", lane="plain"),
            Backend(url="http://c", lane="plain"),
        )
    )
    assert [b.name for b in config.backends] == ["plain-2", "plain-3", "plain-4"]


def test_every_fault_is_told_at_once_with_its_path(tmp_path: Path) -> None:
    text = """
    [server]
    port = "8080"
    keepalive_seconds = 3
    tls_cert_file = "cert.pem"

    [[backends]]
    urll = "http://a:8000"
    lane = "fast"
    name = "one"
    depth = -1

    [[backends]]
    url = "http://b:8000"
    lane = "plain"
    name = "one"
    api_key = "k"
    api_key_env = "K"

    [policy]
    nam = "least-load"

    [policy.verdict]
    margin = -1.0
    """
    assert sorted(faults(tmp_path, text)) == [
        "backends.0.depth: should be greater than or equal to 0, not -1",
        "backends.0.lane: should be 'speculative' or 'plain'",
        "backends.0.url: this key is required",
        "backends.0.urll: unexpected key (did you mean url?)",
        "backends.1.name: is the same as backends.0.name",
        "backends.1: api_key and api_key_env exclude each other",
        "policy.nam: unexpected key (did you mean name?)",
        "policy.verdict.margin: cannot be negative, not -1.0",
        "server.keepalive_seconds: unexpected key (did you mean keep_alive_seconds?)",
        "server.port: should be a valid integer",
        "server.tls_cert_file: tls_cert_file and tls_key_file need each other",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[[backends]]\nurl="a:8000"\nlane="plain"', "backends.0.url: a backend URL starts with http://, https:// or"),
        ('[[backends]]\nurl="http://"\nlane="plain"', "backends.0.url: the URL names no host"),
        ('[[backends]]\nurl="http://a/?k=1"\nlane="plain"', "backends.0.url: a base URL has no ?query or #fragment"),
        ('[[backends]]\nurl="http://a:99999"\nlane="plain"', "backends.0.url: Port out of range 0-65535"),
        ('[[backends]]\nurl="unix:run/x"\nlane="plain"', "backends.0.url: a Unix socket needs an absolute path"),
        (TWO_LANES + "[sever]", "sever: unexpected key (did you mean server?)"),
        (TWO_LANES + "[server]\nport = 8081\nadmin_port = 8081", "server.admin_port: is the public port"),
        (TWO_LANES + "[timeouts]\nidle_seconds = inf", "timeouts.idle_seconds: should be a finite number, not inf"),
        (TWO_LANES + "[timeouts]\nidle_seconds = 0", "timeouts.idle_seconds: should be greater than 0, not 0"),
        (TWO_LANES + '[keys.sha256]\na = "abc"', "keys.sha256.a: does not have the form ^[0-9a-f]{64}$"),
        (TWO_LANES + '[log]\nlevel = "loud"', "log.level: should be 'debug', 'info', 'warning' or 'error'"),
        (TWO_LANES + 'engine = "vlm"', "backends.1.engine: 'vlm' is no engine known here (vllm, "),
        (TWO_LANES + 'headers = { "x y" = "1" }', "backends.1.headers: 'x y' is not a header name"),
        (TWO_LANES + 'headers = { x = "1\\n2" }', "backends.1.headers: the value of 'x' holds control characters"),
        (TWO_LANES + 'api_key_env = "NOT_SET_HERE"', "backends.1.api_key_env: the environment has no NOT_SET_HERE"),
        (TWO_LANES + 'api_key_file = "nowhere"', "backends.1.api_key_file: cannot read "),
        (TWO_LANES + "[journal]\npath = 3", "journal.path: "),
        ("", "backends: at least one backend is needed"),
        ("[server", "not TOML: "),
        ('[[models]]\nname="a"\naliases=["b"]\n[[models]]\nname="b"\naliases=["c"]', "models.0.aliases.0: 'b' is alr"),
        ("backends = 3", "backends: should be a valid array"),
        ("server = [1]", "server: should be an object"),
    ],
)
def test_a_fault_is_told_in_words(tmp_path: Path, text: str, fault: str) -> None:
    assert any(told.startswith(fault) for told in faults(tmp_path, text)), faults(tmp_path, text)


def test_the_line_of_a_syntax_error_is_told(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "redis_url = 'redis://r'\n[server]\nport = = 3\n")
    assert "line 3" in fault


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "latin.toml")


def test_two_spellings_of_one_url_are_one_backend() -> None:
    with pytest.raises(ConfigError, match=r"backends\.1\.url: is the same as backends\.0\.url"):
        from_urls(["http://a:8000/v1/", "http://a:8000"], [])


def test_one_engine_may_stand_in_both_lanes_for_a_trial() -> None:
    assert len(from_urls(["http://a:8000"], ["http://a:8000"]).backends) == 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://a:8000/v1/", "http://a:8000"),
        ("http://a:8000/", "http://a:8000"),
        ("https://a/llm/v1", "https://a/llm"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("unix:/run/e.sock", "unix:/run/e.sock"),
        ("unix:///run/e.sock", "unix:/run/e.sock"),
    ],
)
def test_urls_are_kept_in_one_form(given: str, kept: str) -> None:
    assert from_urls([given], []).backends[0].url == kept


def test_secrets_show_neither_in_repr_nor_in_faults(tmp_path: Path) -> None:
    secret = "sk-very-secret"
    text = f"""
    redis_url = "redis://:{secret}@r:6379/0"
    [[backends]]
    url = "http://a"
    lane = "plain"
    api_key = "{secret}"
    headers = {{ x-token = "{secret}" }}
    """
    config = load(written(tmp_path, text))
    assert secret not in repr(config)
    assert config.backends[0].request_headers() == {"authorization": f"Bearer {secret}", "x-token": secret}
    for wrong in (
        f'redis_url = "{secret}"',
        f'{text}\napi_kee = "{secret}"',
        f'{text}\nmax_requests = "{secret}"',
        f'[[backends]]\nurl = "http://u:{secret}@a"\nlane = "plain"',
        f'[[backends]]\nurl = "{secret}"\nlane = "{secret}"',
        f'{TWO_LANES}\nheaders = {{ x = "{secret}\\n" }}',
        f'{TWO_LANES}\napi_key = ["{secret}"]',
        f'[keys.sha256]\nme = "{secret}"',
    ):
        assert secret not in "\n".join(faults(tmp_path, wrong))


def test_keys_of_backends_come_from_where_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "from-env")
    (tmp_path / "key").write_text("from-file\n")
    text = TWO_LANES + 'api_key_env = "ENGINE_KEY"\n[[backends]]\nurl="http://c"\nlane="plain"\napi_key_file="key"'
    first, second, third = load(written(tmp_path, text)).backends
    assert [first.key(), second.key(), third.key()] == [None, "from-env", "from-file"]
    assert first.request_headers() == {}


def test_relative_paths_count_from_the_file(tmp_path: Path) -> None:
    config = load(written(tmp_path, TWO_LANES + '[journal]\npath = "log/journal.jsonl"'))
    assert config.journal.path == tmp_path / "log/journal.jsonl"


def test_what_only_serving_needs_can_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, '[policy]\nname = "least-load"\n[keys]\nfile = "elsewhere"')
    assert load(path, to_serve=False).policy.name == "least-load"
    with pytest.raises(ConfigError):
        load(path)


def test_nothing_wrong_can_be_built_in_code_either() -> None:
    with pytest.raises(ValidationError):
        Config(
            backends=(
                Backend(url="http://a", lane="plain", name="x"),
                Backend(url="http://b", lane="plain", name="x"),
            )
        )
    with pytest.raises(ValidationError):
        Config().server.port = 3


def test_the_schema_says_what_the_file_may_say() -> None:
    said = schema()
    assert said["properties"]["policy"]["$ref"] == "#/$defs/PolicySettings"
    assert said["$defs"]["Backend"]["required"] == ["url", "lane"]
    assert said["$defs"]["PolicySettings"]["properties"]["lane_rules"]["default"]["min_p"] == "plain"
    assert "vllm" in json.dumps(said["$defs"]["Backend"]["properties"]["engine"])


def toml(value: object) -> str:
    """A value as TOML writes it in one line; JSON's escapes are TOML's too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


WORDS = st.text("abc/:-.*é", max_size=6)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | WORDS | st.sampled_from(["plain", "http://a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
SECTIONS = st.sampled_from(list(Config.model_fields))
SETTINGS = st.sampled_from(["url", "lane", "name", "aliases", "port", "api_key", "sha256", "verdict", "path"]) | WORDS
TABLES = st.dictionaries(SETTINGS, VALUES, max_size=4)


@given(st.dictionaries(SECTIONS, VALUES | TABLES | st.lists(TABLES, max_size=3), max_size=5))
def test_any_nonsense_is_told_as_faults(tmp_path_factory: pytest.TempPathFactory, nonsense: dict[str, object]) -> None:
    lines = [f"{section} = {toml(value)}" for section, value in nonsense.items()]
    path = written(tmp_path_factory.mktemp("nonsense"), "\n".join(lines))
    told: tuple[str, ...] = ()
    try:
        sound = load(path)
    except ConfigError as error:
        told = error.faults
    assert told or all(backend.name for backend in sound.backends)
    assert len(set(told)) == len(told)
