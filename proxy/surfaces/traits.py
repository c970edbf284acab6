"""What is special about a request: names that lane rules and predictor keys look at, and the kind of content.

Cheap guesses on purpose: they choose priors and keys, never whether a request is served.
"""

import math
import re
from typing import Final

from proxy.surfaces.shapes import Sampling

_WORD: Final = re.compile(r"[a-z_-]{1,16}")
COUNTABLE: Final = 1 << 53
"""Above it nothing is counted: JSON allows numbers of any length, and neither floats nor journals take them."""
_LONG_INPUT: Final = 24 << 10  # bytes
_CODE_MARKS = (b"```", b"def ", b"function ", b"import ", b"#include", b"class ", b"return ", b"const ", b"public ")
_DIFF_MARKS = (b"<<<<<<< ", b"diff --git", b"\\n@@ -", b"\\n+++ ", b"*** Begin Patch", b"*** Update File")
_EDIT_WISHES = (
    b"fix",
    b"refactor",
    b"rename",
    b"change",
    b"edit",
    b"modify",
    b"update",
    b"replace",
    b"rewrite",
    b"remove",
    b"apply",
    b"add ",
)


def sampling_features(asked: Sampling) -> set[str]:
    """Names of what is unusual about the sampling; defaults and zeros are not."""
    found = set()
    if asked.min_p:
        found.add("min_p")
    if asked.logit_bias:
        found.add("logit_bias")
    if asked.logprobs is not None and asked.logprobs is not False:
        found.add("logprobs")
    if asked.prompt_logprobs is not None and asked.prompt_logprobs is not False:
        found.add("prompt_logprobs")
    if asked.stop:
        found.add("stop")
    if count(asked.n) not in (None, 0, 1) or count(asked.best_of) not in (None, 0, 1):
        found.add("n")
    if asked.use_beam_search:
        found.add("beam_search")
    if asked.ignore_eos:
        found.add("ignore_eos")
    if asked.min_tokens:
        found.add("min_tokens")
    _add_constraints(found, asked)
    return found


def _add_constraints(found: set[str], asked: Sampling) -> None:
    """How the answer's form is forced: the engines' several names for JSON schema, JSON and grammar."""
    if asked.response_format is not None:
        found.add(_of_format(asked.response_format))
    if asked.structured_outputs is not None:
        found.add(_of_structure(asked.structured_outputs))
    if asked.guided_json is not None or asked.json_schema is not None:
        found.add("json_schema")
    if asked.guided_regex or asked.guided_choice or asked.guided_grammar or asked.grammar or asked.regex or asked.ebnf:
        found.add("grammar")
    found.discard("")


def _of_format(response_format: object) -> str:
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind in ("json_schema", "json_object"):
        return str(kind)
    return "grammar" if kind not in (None, "text") else ""


def _of_structure(structured: object) -> str:
    """vLLM's ``structured_outputs``."""
    told = structured if isinstance(structured, dict) else {}
    if told.get("json") is not None:
        return "json_schema"
    if told.get("json_object"):
        return "json_object"
    return "grammar" if any(value is not None for value in told.values()) else ""


def format_features(text: object) -> set[str]:
    """Of the responses surface's ``text`` (its format)."""
    found = {_of_format(text.get("format")) if isinstance(text, dict) else ""}
    found.discard("")
    return found


def tool_features(tools: bytes, tool_choice: object) -> set[str]:
    """``tools`` when there are any, ``tool_choice`` when one is forced."""
    if not tools or tools == b"null" or tools == b"[]":
        return set()
    forced = isinstance(tool_choice, dict) and tool_choice.get("type") not in ("auto", "none")
    if forced or tool_choice in ("required", "any"):
        return {"tools", "tool_choice"}
    return {"tools"}


def effort(value: object) -> set[str]:
    """``reasoning:high`` and the like; one short lower-case word or nothing."""
    return {f"reasoning:{value}"} if isinstance(value, str) and _WORD.fullmatch(value) else set()


def count(value: object) -> int | None:
    """A whole number that is not negative, also written as 16.0; else None, as for one that nobody could mean."""
    if type(value) is int:
        return value if 0 <= value <= COUNTABLE else None
    if type(value) is float and 0 <= value <= COUNTABLE and value.is_integer():
        return int(value)
    return None


def number(value: object) -> float | None:
    """A number that a float can hold; else None."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    return float(value) if type(value) is int and -COUNTABLE <= value <= COUNTABLE else None


def truth(value: object) -> bool:
    """What pydantic, and so vLLM and SGLang, takes for true."""
    return value is True or value in (1, "true", "True", "1", "on", "yes")


def kind_of_content(excerpt: bytes, size: int, features: set[str]) -> str:
    """``json``, ``code-edit``, ``tools``, ``code``, ``long-input`` or ``text``, from a bounded raw excerpt."""
    if "json_schema" in features or "json_object" in features:
        return "json"
    # Code and diffs have lines; this one look spares most requests all the others.
    lines = excerpt.find(b"\\n") >= 0  # ``in`` takes a number, too, and tries that first
    if lines and _any_of(_DIFF_MARKS, excerpt):
        return "code-edit"
    code = lines and _any_of(_CODE_MARKS, excerpt)
    if code and _any_of(_EDIT_WISHES, excerpt.lower()):
        return "code-edit"
    if "tools" in features:
        return "tools"
    if code:
        return "code"
    return "long-input" if size > _LONG_INPUT else "text"


def _any_of(marks: tuple[bytes, ...], text: bytes) -> bool:
    return any(mark in text for mark in marks)


EXCERPT: Final = 2 << 10
"""Bytes of text that are looked at to guess the kind of content."""
