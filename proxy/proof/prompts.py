"""Prompt sets: the built-in one and files in the shapes public sets come in."""

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

BUILT_IN = Path(__file__).parent.parent / "prompts"
WARM_UP = "warm-up"
TEXT_KEYS = ("prompt", "text", "question", "instruction", "input", "query")
KIND_KEYS = ("kind", "category", "task", "type")


class Prompt(NamedTuple):
    """One request of a comparison."""

    id: str
    kind: str
    text: str
    language: str = "en"


class PromptFileError(Exception):
    """A prompt file could not be understood; the message names file and line."""


def built_in(kinds: Sequence[str] = ()) -> list[Prompt]:
    """The shipped prompts, of these kinds only when any are named. Raises PromptFileError for an unknown kind."""
    prompts = [p for path in sorted(BUILT_IN.glob("*.jsonl")) for p in read_file(path) if p.kind != WARM_UP]
    known = sorted({p.kind for p in prompts})
    if unknown := [kind for kind in kinds if kind not in known]:
        raise PromptFileError(f"no built-in prompts of kind {', '.join(unknown)}; there are {', '.join(known)}")
    return [p for p in prompts if not kinds or p.kind in kinds]


def warm_ups() -> list[Prompt]:
    """Short prompts that are sent first and never measured."""
    return read_file(BUILT_IN / f"{WARM_UP}.jsonl")


def freshened(prompts: Iterable[Prompt], rng: random.Random) -> list[Prompt]:
    """The prompts with a dozen words drawn at random put before each: no engine has seen them, even in an earlier run."""
    words = sorted({word for prompt in built_in() for word in prompt.text.split() if word.isalpha() and len(word) > 4})
    return [prompt._replace(text=f"{' '.join(rng.sample(words, 12))}. {prompt.text}") for prompt in prompts]


def read_file(path: Path) -> list[Prompt]:
    """Read JSON lines (``prompt``, ``turns`` or ``messages``; kind or ``category``), or one prompt per line of text.

    Of several turns the first user turn is taken. Raises PromptFileError.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptFileError(f"{path}: {error}") from error
    plain = path.suffix == ".txt"
    prompts = [
        Prompt(f"{path.stem}-{number}", path.stem, line) if plain else _from_json(path, number, line)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not prompts:
        raise PromptFileError(f"{path}: no prompts in it")
    return prompts


def _from_json(path: Path, number: int, line: str) -> Prompt:
    try:
        record = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise PromptFileError(f"{path}:{number}: not JSON: {error}") from error
    text = _text(record) if isinstance(record, Mapping) else None
    if not text:
        raise PromptFileError(f"{path}:{number}: no prompt text under {', '.join((*TEXT_KEYS, 'turns', 'messages'))}")
    identity = record.get("id", record.get("question_id", number))
    kind = next((str(record[key]) for key in KIND_KEYS if record.get(key)), path.stem)
    return Prompt(f"{path.stem}-{identity}", kind, text, str(record.get("language", "en")))


def _text(record: Mapping[str, object]) -> str | None:
    for key in TEXT_KEYS:
        if isinstance(value := record.get(key), str) and value.strip():
            return value
    turns = record.get("turns")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return turns[0]
    messages = record.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    return None


def per_kind(prompts: Iterable[Prompt], limit: int | None, seed: int) -> list[Prompt]:
    """At most ``limit`` prompts of each kind, drawn by seed, in a shuffled order in which kinds alternate fairly."""
    rng = random.Random(seed)
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    placed: list[tuple[float, Prompt]] = []
    for _, group in sorted(kinds.items()):
        chosen = rng.sample(group, len(group) if limit is None else min(limit, len(group)))
        placed += [((place + rng.random()) / len(chosen), prompt) for place, prompt in enumerate(chosen)]
    return [prompt for _, prompt in sorted(placed, key=lambda item: item[0])]


def shares(prompts: Sequence[Prompt], loads: int) -> list[list[Prompt]]:
    """Split into disjoint shares, one per load, every kind spread evenly: no prompt is sent twice to an arm."""
    dealt: list[list[Prompt]] = [[] for _ in range(loads)]
    seen: dict[str, int] = {}
    for prompt in prompts:
        turn = seen.get(prompt.kind, 0)
        dealt[turn % loads].append(prompt)
        seen[prompt.kind] = turn + 1
    return dealt
