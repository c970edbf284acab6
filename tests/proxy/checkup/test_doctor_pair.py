"""Draft and target from files written here: sound pairs pass, each planted mismatch is found."""

import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from proxy.checkup import gguf
from proxy.checkup.gguf import UnreadableError, parse_head
from proxy.checkup.model_files import read_model
from proxy.cli import app

WORDS = ["<s>", "</s>", "<pad>", "t", "h", "e", "th", "the", "Ġ", "Ġthe"]
MERGES = ["t h", "th e", "Ġ the"]


def folder(at: Path, change: Callable[[dict[str, Any]], None] = lambda files: None) -> Path:
    """A model folder as Hugging Face lays it out; ``change`` may plant a fault in its files."""
    files: dict[str, Any] = {
        "tokenizer.json": {
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "added_tokens": [{"id": n, "content": WORDS[n], "special": True} for n in range(3)],
            "model": {"type": "BPE", "vocab": {word: n for n, word in enumerate(WORDS)}, "merges": list(MERGES)},
        },
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "eos_token": {"content": "</s>"},
            "pad_token": "<pad>",
            "add_bos_token": True,
        },
        "config.json": {
            "vocab_size": 16,
            "hidden_size": 64,
            "num_hidden_layers": 20,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 256,
            "max_position_embeddings": 4096,
        },
    }
    change(files)
    at.mkdir()
    for name, content in files.items():
        (at / name).write_text(json.dumps(content), encoding="utf-8")
    return at


def small(files: dict[str, Any]) -> None:
    """A draft: the same in all but depth."""
    files["config.json"]["num_hidden_layers"] = 1


def drafted(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """A small draft with one more change."""

    def both(files: dict[str, Any]) -> None:
        small(files)
        change(files)

    return both


def swap_ids(files: dict[str, Any]) -> None:
    vocab = files["tokenizer.json"]["model"]["vocab"]
    vocab["th"], vocab["the"] = vocab["the"], vocab["th"]


def another_word(files: dict[str, Any]) -> None:
    vocab = files["tokenizer.json"]["model"]["vocab"]
    vocab["die"] = vocab.pop("the")


def move_marker(files: dict[str, Any]) -> None:
    files["tokenizer.json"]["added_tokens"][2]["id"] = 12


def forget_marker(files: dict[str, Any]) -> None:
    del files["tokenizer.json"]["added_tokens"][2]


PLANTED: dict[str, tuple[Callable[[dict[str, Any]], None], str, str]] = {
    "two tokens swapped": (drafted(swap_ids), "vocabulary", "fault"),
    "one id, two tokens": (drafted(another_word), "vocabulary", "fault"),
    "one unused token more": (
        drafted(lambda files: files["tokenizer.json"]["model"]["vocab"].update(extra=10)),
        "vocabulary",
        "warning",
    ),
    "another end token": (
        drafted(lambda files: files["tokenizer_config.json"].update(eos_token="<pad>")),
        "special tokens",
        "fault",
    ),
    "one adds a beginning, the other does not": (
        drafted(lambda files: files["tokenizer_config.json"].update(add_bos_token=False)),
        "special tokens",
        "fault",
    ),
    "another padding token": (
        drafted(lambda files: files["tokenizer_config.json"].update(pad_token="</s>")),
        "special tokens",
        "warning",
    ),
    "merges in another order": (
        drafted(lambda files: files["tokenizer.json"]["model"]["merges"].reverse()),
        "merges",
        "fault",
    ),
    "a marker under another id": (drafted(move_marker), "added tokens", "fault"),
    "a marker the draft does not know": (drafted(forget_marker), "added tokens", "warning"),
    "text prepared differently": (
        drafted(lambda files: files["tokenizer.json"].update(normalizer={"type": "NFKC"})),
        "text preparation",
        "warning",
    ),
    "too few embedding rows": (
        drafted(lambda files: files["config.json"].update(vocab_size=8)),
        "embedding rows",
        "fault",
    ),
    "a draft as big as its target": (lambda files: None, "size ratio", "fault"),
    "a short-sighted draft": (
        drafted(lambda files: files["config.json"].update(max_position_embeddings=512)),
        "draft context",
        "warning",
    ),
}


def examined(target: Path, draft: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status and the findings by check (the worst last)."""
    result = CliRunner().invoke(app, ["doctor", "--target", str(target), "--draft", str(draft), "--json"])
    assert result.stdout, result.output
    return result.exit_code, {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}


def test_a_sound_pair_of_folders_passes(tmp_path: Path) -> None:
    code, found = examined(folder(tmp_path / "target"), folder(tmp_path / "draft", small))
    assert code == 0
    assert {check for check, finding in found.items() if finding["severity"] != "fine"} == {"probe texts"}
    assert found["vocabulary"]["sentence"] == "all 10 tokens have the same id"


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_mismatch_is_found(name: str, tmp_path: Path) -> None:
    change, check, severity = PLANTED[name]
    code, found = examined(folder(tmp_path / "target"), folder(tmp_path / "draft", change))
    assert (found[check]["severity"], bool(found[check]["fix"])) == (severity, True)
    assert code == (1 if any(finding["severity"] == "fault" for finding in found.values()) else 0)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def texts(values: list[str]) -> bytes:
    return struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values))


def head(pairs: list[bytes], version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + b"".join(pairs)


def gguf_file(at: Path, words: list[str], label: str, *, add_bos: bool = True, eos: int = 1) -> Path:
    """A GGUF file with nothing but a head, and rubbish where the tensors would be."""
    kinds = struct.pack(f"<IQ{len(words)}i", 5, len(words), *[3 if word.startswith("<") else 1 for word in words])
    pairs = [
        pair("general.architecture", 8, text("llama")),
        pair("general.size_label", 8, text(label)),
        pair("llama.context_length", 4, struct.pack("<I", 8192)),
        pair("tokenizer.ggml.model", 8, text("gpt2")),
        pair("tokenizer.ggml.pre", 8, text("llama-bpe")),
        pair("tokenizer.ggml.tokens", 9, texts(words)),
        pair("tokenizer.ggml.token_type", 9, kinds),
        pair("tokenizer.ggml.merges", 9, texts(MERGES)),
        pair("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 0)),
        pair("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", eos)),
        pair("tokenizer.ggml.add_bos_token", 7, struct.pack("<?", add_bos)),
    ]
    at.write_bytes(head(pairs) + b"\xff" * 64)
    return at


def test_a_sound_pair_of_gguf_files_passes(tmp_path: Path) -> None:
    code, found = examined(gguf_file(tmp_path / "t.gguf", WORDS, "8B"), gguf_file(tmp_path / "d.gguf", WORDS, "0.5B"))
    assert code == 0
    assert {check for check, finding in found.items() if finding["severity"] != "fine"} == {"probe texts"}
    assert "6.2%" in found["size ratio"]["sentence"]


def test_gguf_files_that_disagree_on_who_adds_the_beginning_are_a_fault(tmp_path: Path) -> None:
    target = gguf_file(tmp_path / "t.gguf", WORDS, "31B")
    code, found = examined(target, gguf_file(tmp_path / "d.gguf", WORDS, "2B", add_bos=False))
    assert code == 1
    assert "add_bos is True in the target, False in the draft" in found["special tokens"]["sentence"]


def test_a_gguf_file_and_a_folder_of_the_same_tokenizer_agree(tmp_path: Path) -> None:
    code, found = examined(folder(tmp_path / "target"), gguf_file(tmp_path / "d.gguf", WORDS, "1K"))
    assert code == 0
    assert found["vocabulary"]["severity"] == found["merges"]["severity"] == "fine"
    assert found["text preparation"]["severity"] == "not checked"


def test_a_gguf_head_tells_size_context_and_markers(tmp_path: Path) -> None:
    model = read_model(gguf_file(tmp_path / "m.gguf", WORDS, "8x7B"))
    assert model.parameters == 56e9
    assert model.context_tokens == 8192
    assert model.added == {"<s>": 0, "</s>": 1, "<pad>": 2}


@given(
    st.dictionaries(
        st.text(max_size=20),
        st.one_of(st.integers(-(2**31), 2**31 - 1), st.text(max_size=40), st.lists(st.text(max_size=9), max_size=9)),
        max_size=8,
    )
)
def test_whatever_is_written_is_read_again(content: dict[str, Any]) -> None:
    def written(key: str, value: Any) -> bytes:
        match value:
            case int():
                return pair(key, 5, struct.pack("<i", value))
            case str():
                return pair(key, 8, text(value))
        return pair(key, 9, texts(value))

    raw = head([written(key, value) for key, value in content.items()])
    assert read_bytes(raw) == content


@given(st.binary(max_size=400))
def test_no_bytes_do_worse_than_an_error(raw: bytes) -> None:
    with pytest.raises(UnreadableError):
        read_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**20) + raw)
    with pytest.raises(UnreadableError):
        read_bytes(head([], version=9) + raw)


def read_bytes(raw: bytes) -> dict[str, gguf.Value]:
    """A head from memory."""
    return parse_head(BytesIO(raw), "memory")


def test_a_head_that_promises_too_much_is_not_believed() -> None:
    endless = text("k") + struct.pack("<IIQ", 9, 4, 2**62)
    with pytest.raises(UnreadableError, match="array"):
        read_bytes(head([endless]))
    with pytest.raises(UnreadableError, match="longer than"):
        read_bytes(head([struct.pack("<Q", 2**60)]))
    with pytest.raises(UnreadableError, match="does not exist"):
        read_bytes(head([pair("k", 77, b"")]))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"GGUF", "cut off"), (b"{", "not JSON"), (b"{}", "no vocabulary"), (b"[1]", "no vocabulary")],
)
def test_a_file_that_is_none_is_the_operators_mistake(content: bytes, complaint: str, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.write_bytes(content)
    result = CliRunner().invoke(
        app, ["doctor", "--target", str(broken), "--draft", str(broken)], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.replace("│", " ").split())


def test_questions_that_make_no_sense_are_refused() -> None:
    for arguments in ([], ["--target", "x"], ["-c", "x.toml", "--plain", "http://127.0.0.1:9"]):
        assert CliRunner().invoke(app, ["doctor", *arguments]).exit_code == 2


def test_a_piece_list_with_scores_is_a_vocabulary_too(tmp_path: Path) -> None:
    def unigram(files: dict[str, Any]) -> None:
        files["tokenizer.json"]["model"] = {"type": "Unigram", "vocab": [[word, -1.0] for word in WORDS]}

    model = read_model(folder(tmp_path / "m", unigram))
    assert model.vocabulary == {word: number for number, word in enumerate(WORDS)}
    assert model.merges is None


@pytest.mark.parametrize(
    ("line", "old", "current"),
    [
        ("vllm serve m --speculative-model d --num-speculative-tokens 5", "--speculative-model", "draft_model"),
        ("vllm serve m --speculative_model d", "--speculative_model", "--speculative-config"),
        ("vllm serve m --ngram-prompt-lookup-max=4", "--ngram-prompt-lookup-max", "prompt_lookup_max"),
        ("llama-server -m x --draft-max 64", "--draft-max", "--spec-draft-n-max"),
        ("llama-server -m x --spec-ngram-size-n 24", "--spec-ngram-size-n", "--spec-ngram-mod-n-match"),
        ("llama-server --spec-type draft", "--spec-type draft", "draft-simple"),
    ],
)
def test_an_old_flag_is_a_fault_that_names_the_current_one(line: str, old: str, current: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--flags", line, "--json"])
    found = [finding for finding in json.loads(result.stdout)["findings"] if finding["sentence"].startswith(f"{old} ")]
    assert result.exit_code == 1
    assert len(found) == 1
    assert current in found[0]["fix"]


@pytest.mark.parametrize(
    "line",
    [
        """vllm serve m --speculative-config '{"method":"ngram","num_speculative_tokens":5}'""",
        "llama-server -m x --spec-type ngram-mod --spec-ngram-mod-n-match 24 -md d.gguf",
        "python -m sglang.launch_server --speculative-algorithm EAGLE3 --speculative-num-steps 4",
    ],
)
def test_current_flags_pass(line: str) -> None:
    assert CliRunner().invoke(app, ["doctor", "--flags", line]).exit_code == 0
