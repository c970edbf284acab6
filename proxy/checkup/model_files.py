"""What files tell of a model: its tokenizer, its size, its context. Weights are never opened."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proxy.checkup.gguf import UnreadableError, read_head

_MOST_BYTES = 256 * 1024 * 1024
_CONTROL, _USER_DEFINED = 3, 4


class Tokenized(NamedTuple):
    """A model as far as drafting for it, or by it, is concerned. None: not told."""

    source: str
    vocabulary: Mapping[str, int] | None = None
    merges: tuple[str, ...] | None = None
    added: Mapping[str, int] | None = None
    """Tokens that are never split: control tokens, tool and thinking markers."""
    special: Mapping[str, int | bool | None] = {}
    """``bos``, ``eos``, ``pad`` as ids; ``add_bos``, ``add_eos`` as flags. A missing key was not told."""
    splitting: str | None = None
    """Normaliser and pre-tokenizer, in a form that can be compared among files of one kind."""
    rows: int | None = None
    """Rows of the embedding table: ids from here on do not exist for the model."""
    parameters: float | None = None
    file_bytes: int | None = None
    context_tokens: int | None = None
    probes: Mapping[str, tuple[int, ...]] = {}
    """Text → ids, as a server answered."""


def read_model(path: Path) -> Tokenized:
    """A GGUF file, a model folder or a tokenizer.json. Raises UnreadableError or OSError."""
    if path.is_dir():
        return _folder(path)
    with path.open("rb") as file:
        magic = file.read(4)
    return from_gguf(path) if magic == b"GGUF" else _tokenizer_file(path, Tokenized(str(path)))


def _json(path: Path) -> Any:
    if path.stat().st_size > _MOST_BYTES:
        raise UnreadableError(f"{path}: larger than any tokenizer")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not JSON: {error}") from error


def _optional(path: Path) -> dict[str, Any]:
    found = _json(path) if path.exists() else {}
    return found if isinstance(found, dict) else {}


def _folder(folder: Path) -> Tokenized:
    if not (folder / "tokenizer.json").exists():
        files = sorted(folder.glob("*.gguf"))
        if len(files) == 1:
            return from_gguf(files[0])
        raise UnreadableError(f"{folder}: neither a tokenizer.json nor exactly one GGUF file in it")
    found = _tokenizer_file(folder / "tokenizer.json", Tokenized(str(folder)))
    dressed = _special_from(_optional(folder / "tokenizer_config.json"), found)
    return _sized(_optional(folder / "config.json"), _optional(folder / "model.safetensors.index.json"), dressed)


def _tokenizer_file(path: Path, known: Tokenized) -> Tokenized:
    data = _json(path)
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(model, dict) or not model.get("vocab"):
        raise UnreadableError(f"{path}: no vocabulary in it")
    added = {str(token["content"]): int(token["id"]) for token in data.get("added_tokens") or ()}
    merges = model.get("merges")
    how = {name: data.get(name) for name in ("normalizer", "pre_tokenizer")}
    return known._replace(
        vocabulary={**_vocabulary(model["vocab"]), **added},
        merges=None if merges is None else tuple(pair if isinstance(pair, str) else " ".join(pair) for pair in merges),
        added=added,
        splitting=json.dumps(how, sort_keys=True),
    )


def _vocabulary(vocab: Any) -> dict[str, int]:
    if isinstance(vocab, dict):
        return {str(piece): int(number) for piece, number in vocab.items()}
    return {str(entry[0]): number for number, entry in enumerate(vocab)}


def _special_from(config: Mapping[str, Any], known: Tokenized) -> Tokenized:
    special: dict[str, int | bool | None] = {}
    for name in ("bos", "eos", "pad"):
        token = config.get(f"{name}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if f"{name}_token" in config and known.vocabulary is not None:
            special[name] = None if token is None else known.vocabulary.get(token)
    for name in ("add_bos", "add_eos"):
        if isinstance(config.get(f"{name}_token"), bool):
            special[name] = config[f"{name}_token"]
    return known._replace(special=special)


def _sized(config: Mapping[str, Any], index: Mapping[str, Any], known: Tokenized) -> Tokenized:
    text = config.get("text_config")
    shape = {**config, **text} if isinstance(text, dict) else config
    stated = (index.get("metadata") or {}).get("total_parameters")
    return known._replace(
        rows=shape.get("vocab_size"),
        context_tokens=shape.get("max_position_embeddings"),
        parameters=float(stated) if stated else _parameters(shape),
    )


def _parameters(shape: Mapping[str, Any]) -> float | None:
    """From the shapes in config.json; dense models only, since configurations of experts differ in their names."""
    try:
        hidden, layers, heads = shape["hidden_size"], shape["num_hidden_layers"], shape["num_attention_heads"]
        size = shape.get("head_dim") or hidden // heads
        cached = shape.get("num_key_value_heads") or heads
        layer = 2 * hidden * size * (heads + cached) + 3 * hidden * shape["intermediate_size"]
        tables = 1 if shape.get("tie_word_embeddings") else 2
        total = layers * layer + tables * shape["vocab_size"] * hidden
    except (KeyError, TypeError, ZeroDivisionError):
        return None
    return None if any("expert" in key for key in shape) else float(total)


def from_gguf(path: Path) -> Tokenized:
    """What the head of a GGUF file tells."""
    head = read_head(path)
    tokens, kinds = head.get("tokenizer.ggml.tokens"), head.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not tokens:
        raise UnreadableError(f"{path}: no vocabulary in it (tokenizer.ggml.tokens)")
    merges, family = head.get("tokenizer.ggml.merges"), head.get("general.architecture")
    vocabulary = {str(token): number for number, token in enumerate(tokens)}
    special = (_CONTROL, _USER_DEFINED)
    added = {str(tokens[n]): n for n, kind in enumerate(kinds) if kind in special} if isinstance(kinds, list) else None
    context = head.get(f"{family}.context_length")
    return Tokenized(
        str(path),
        vocabulary,
        tuple(str(pair) for pair in merges) if isinstance(merges, list) else None,
        added,
        _gguf_special(head),
        f"{head.get('tokenizer.ggml.model')}/{head.get('tokenizer.ggml.pre')}",
        len(tokens),
        _gguf_parameters(head),
        path.stat().st_size,
        context if isinstance(context, int) else None,
    )


def _gguf_special(head: Mapping[str, Any]) -> dict[str, int | bool | None]:
    named = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
    flags = {"add_bos": "add_bos_token", "add_eos": "add_eos_token"}
    return {
        name: head[f"tokenizer.ggml.{key}"]
        for name, key in {**named, **flags}.items()
        if f"tokenizer.ggml.{key}" in head
    }


_LABEL = re.compile(r"^(?:(\d+)x)?([\d.]+)([KMBT])", re.IGNORECASE)


def _gguf_parameters(head: Mapping[str, Any]) -> float | None:
    stated = head.get("general.parameter_count")
    if isinstance(stated, int):
        return float(stated)
    label = _LABEL.match(str(head.get("general.size_label", "")))
    if label is None:
        return None
    unit = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[label.group(3).upper()]
    return int(label.group(1) or 1) * float(label.group(2)) * unit
