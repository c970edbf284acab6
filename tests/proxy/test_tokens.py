"""Token counts come from files on this machine or not at all."""

import base64
import hashlib
from pathlib import Path

import pytest

from proxy import tokens


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """All bytes, and the merges that make ``the`` one token."""
    words = [bytes((byte,)) for byte in range(256)] + [b"th", b"the", b" t", b" th", b" the"]
    lines = [base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(words)]
    path = tmp_path / "small.tiktoken"
    path.write_bytes(b"".join(lines))
    return path


def test_a_configured_file_counts_exactly(vocabulary: Path) -> None:
    tokenizer = tokens.load(vocabulary)
    assert tokenizer is not None
    assert tokenizer.name == "small"
    assert tokenizer.count("the the") == 2
    assert tokenizer.count("then") == 2
    assert tokenizer.count("") == 0


def test_special_tokens_in_user_text_are_text(vocabulary: Path) -> None:
    tokenizer = tokens.load(str(vocabulary))
    assert tokenizer is not None
    assert tokenizer.count("<|endoftext|>") == len("<|endoftext|>")
    assert tokenizer.count("\ud83d") is not None


def test_a_long_text_is_not_counted(vocabulary: Path) -> None:
    tokenizer = tokens.load(vocabulary)
    assert tokenizer is not None
    assert tokenizer.count("x" * (tokens.LONGEST + 1)) is None


@pytest.mark.parametrize("source", ["cl100k_base", "o200k_base", "no-such-encoding", "missing.tiktoken"])
def test_what_is_not_here_is_not_fetched(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert tokens.load(source) is None


def test_a_spoilt_cache_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken itself would delete the file and go to the network."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    address = b"https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    spoilt = tmp_path / hashlib.sha1(address, usedforsecurity=False).hexdigest()
    spoilt.write_bytes(b"not an encoding")
    assert tokens.load("cl100k_base") is None
    assert spoilt.exists()


@pytest.mark.parametrize("switched_off", ["", None])
def test_without_a_cache_there_is_no_known_encoding(switched_off: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", "/nonexistent")
    if switched_off is not None:
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", switched_off)
    assert tokens.load("cl100k_base") is None


@pytest.mark.parametrize("content", [b"", b"garbage", b"YQ== 0\n", b"YQ== zero\n", b"YQ== 0 0\n"])
def test_a_file_that_is_no_encoding_is_the_operators_mistake(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.tiktoken"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a tiktoken encoding"):
        tokens.load(path)
