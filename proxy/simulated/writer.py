"""Made-up answers: deterministic text of the kind a prompt asks for, and how long it would naturally be."""

import itertools
import json
import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from proxy.simulated.tokens import pieces

_FENCE = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_CODE = re.compile(r"```|\bdef \w+\(|\bclass \w+|\bfunction \w+\(|#include <|\bimport \w+")
_EDIT = re.compile(r"\b(?:edit|rename|refactor|rewrite|fix|change|apply|replace|add)\w*\b", re.IGNORECASE)
_LONG_CHARACTERS = 12_000
_SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "ke",
    "li",
    "mo",
    "nu",
    "pa",
    "re",
    "si",
    "to",
    "vu",
    "wa",
    "xe",
    "zi",
)
_NATURAL_TOKENS = {"code": 260, "text": 320, "long-input": 70}


class Answer(NamedTuple):
    """An endless supply of tokens, and after how many of them the answer would end by itself."""

    tokens: Iterator[str]
    natural: int


def kind_of(prompt: str, wants_json: bool) -> str:
    """The kind of content a prompt asks for: ``json``, ``code-edit``, ``code``, ``long-input`` or ``text``."""
    if wants_json:
        return "json"
    if _CODE.search(prompt):
        return "code-edit" if _EDIT.search(prompt) else "code"
    return "long-input" if len(prompt) > _LONG_CHARACTERS else "text"


def write(kind: str, prompt: str, random: Random, scale: float = 1.0) -> Answer:
    """An answer of that kind. The same prompt and the same random source give the same text."""
    if kind == "json":
        return _finite(pieces(_object(random)))
    if kind == "code-edit":
        return _finite(pieces(_edited(prompt, random)))
    lines = _functions(random) if kind == "code" else _sentences(random)
    natural = round(_NATURAL_TOKENS[kind] * scale * random.lognormvariate(0.0, 0.5))
    return Answer((token for line in lines for token in pieces(line)), max(natural, 4))


def _finite(tokens: list[str]) -> Answer:
    return Answer(itertools.chain(tokens, itertools.cycle(tokens)), len(tokens))


def _word(random: Random) -> str:
    return "".join(random.choices(_SYLLABLES, k=random.randint(1, 3)))


def _sentences(random: Random) -> Iterator[str]:
    first = True
    while True:
        words = [_word(random) for _ in range(random.randint(6, 14))]
        yield ("" if first else " ") + " ".join(words).capitalize() + "."
        first = False


def _functions(random: Random) -> Iterator[str]:
    while True:
        name, one, two = _word(random), _word(random), _word(random)
        yield f"def {name}({one}, {two}):\n    return {one} {random.choice('+-*')} {two}\n\n"


def _object(random: Random) -> str:
    items = [{"name": _word(random), "count": random.randint(1, 99)} for _ in range(random.randint(3, 12))]
    return json.dumps({"items": items})


def _edited(prompt: str, random: Random) -> str:
    blocks: list[str] = _FENCE.findall(prompt)
    source = max(blocks, key=len) if blocks else prompt[-4000:]
    names = re.findall(r"\b[a-z_]{4,}\b", source)
    return source.replace(random.choice(names), _word(random)) if names else source or "pass\n"
