import hashlib
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config_error import ConfigError
from proxy.keys import REMEMBERED, Keys

SECRET = b"sk-draftlane-1234567890"
OTHER = b"sk-other"


def sha256(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_without_keys_everybody_may_ask() -> None:
    keys = Keys({})
    assert keys.open
    assert keys.name_of(b"Bearer anything", None) is None


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "name"),
    [
        (b"Bearer " + SECRET, None, "coder"),
        (b"bearer  " + SECRET + b" ", None, "coder"),
        (None, SECRET, "coder"),
        (b"Bearer wrong", SECRET, "coder"),
        (b"Bearer " + SECRET, b"wrong", "coder"),
        (b"Bearer wrong", None, None),
        (b"Bearer", None, None),
        (b"Bearer ", None, None),
        (b"Basic " + SECRET, None, None),
        (SECRET, None, None),
        (b"", b"", None),
        (None, b"Bearer " + SECRET, None),
        (None, sha256(SECRET).encode(), None),
        (None, None, None),
    ],
)
def test_the_key_is_taken_from_either_header(
    authorization: bytes | None, x_api_key: bytes | None, name: str | None
) -> None:
    keys = Keys({"coder": sha256(SECRET)})
    assert not keys.open
    for _ in range(2):  # the second time from memory
        assert keys.name_of(authorization, x_api_key) == name


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_no_other_bytes_open_the_door(authorization: bytes, x_api_key: bytes) -> None:
    assert Keys({"coder": sha256(SECRET)}).name_of(authorization, x_api_key) is None


def test_a_file_adds_keys_and_one_name_may_have_several(file: Path) -> None:
    file.write_text(f"# team keys\n\nwriter {sha256(OTHER)}\n  writer\t{sha256(b'next')} # from May\n")
    keys = Keys({"coder": sha256(SECRET).upper()}, file)
    assert [keys.name_of(None, key) for key in (SECRET, OTHER, b"next")] == ["coder", "writer", "writer"]


def test_an_empty_file_lets_nobody_in(file: Path) -> None:
    file.touch()
    assert not Keys({}, file).open


def test_a_changed_file_is_read_again(file: Path) -> None:
    file.write_text(f"coder {sha256(SECRET)}\n")
    keys = Keys({}, file)
    assert keys.name_of(b"Bearer " + SECRET, None) == "coder"
    assert not keys.reload()
    file.write_text(f"writer {sha256(OTHER)}\n")
    os.utime(file, (1, 1))
    assert keys.reload()
    assert keys.name_of(b"Bearer " + SECRET, None) is None
    assert keys.name_of(None, OTHER) == "writer"


def test_a_swapped_link_counts_as_a_change(file: Path) -> None:
    for name, key in (("one", SECRET), ("two", OTHER)):
        file.with_name(name).write_text(f"x {sha256(key)}\n")
        os.utime(file.with_name(name), (1, 1))
    file.symlink_to("one")
    keys = Keys({}, file)
    file.unlink()
    file.symlink_to("two")
    assert keys.reload()
    assert keys.name_of(None, OTHER) == "x"


@pytest.mark.parametrize("text", ["coder not-a-hash\n", None, b"\xff\xfe"])
def test_a_faulty_file_changes_nothing_and_is_complained_of_once(
    file: Path, caplog: pytest.LogCaptureFixture, text: str | bytes | None
) -> None:
    file.write_text(f"coder {sha256(SECRET)}\n")
    keys = Keys({}, file)
    file.unlink()
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert not keys.reload()
    assert not keys.reload()
    assert keys.name_of(None, SECRET) == "coder"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert str(file) in caplog.text


def test_all_faults_are_named_and_no_line_is_quoted(file: Path) -> None:
    file.write_text(f"coder {SECRET.decode()}\nfine {sha256(OTHER)}\njust-a-name\n")
    with pytest.raises(ConfigError) as raised:
        Keys({}, file)
    assert raised.value.faults == (
        f"{file}:1: expected `name sha256-in-hex`",
        f"{file}:3: expected `name sha256-in-hex`",
    )


def test_a_missing_file_is_the_operators_mistake(file: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Keys({}, file)


def test_one_key_under_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="a and b have the same key"):
        Keys({"a": sha256(SECRET), "b": sha256(SECRET)})


def test_no_secret_shows_in_the_representation() -> None:
    keys = Keys({"coder": sha256(SECRET)})
    keys.name_of(None, SECRET)
    assert repr(keys) == "Keys(1 keys)"


def test_memory_is_bounded_and_wrong_keys_take_none_of_it() -> None:
    keys = Keys({"coder": sha256(SECRET)})
    for number in range(100):
        keys.name_of(b"Bearer wrong %d" % number, None)
    assert not keys._by_authorization
    for spaces in range(REMEMBERED + 10):
        keys.name_of(b"Bearer " + b" " * spaces + SECRET, None)
    assert len(keys._by_authorization) == 10
