"""Presets by the names people use: ``NVIDIA RTX 5060 Ti``, ``Qwen/Qwen3-32B-Instruct``, ``h100_sxm``."""

import difflib
import re
from collections.abc import Mapping
from typing import TypeVar

Preset = TypeVar("Preset")

ALIASES = {
    "a100": "a100-80",
    "h100sxm": "h100",
    "h100sxm5": "h100",
    "h200sxm": "h200",
    "b200sxm": "b200",
    "trn2": "trainium2",
    "rtx3060": "rtx-3060",
    "llama370b": "llama-3.3-70b",
    "llama3.170b": "llama-3.3-70b",
    "llama38b": "llama-3.1-8b",
    "qwen3.527b": "qwen3.8-27b",
    "qwen3.627b": "qwen3.8-27b",
    "qwen3.535ba3b": "qwen3.6-35b-a3b",
    "qwen3coder30ba3b": "qwen3-30b-a3b",
    "deepseekr1": "deepseek-v3",
    "q4": "q4_k_m",
    "awq": "int4",
    "gptq": "int4",
    "fp16": "bf16",
}
"""Names that mean the same figures: models of one shape, chips of one datasheet."""

_DRESSING = re.compile(r"^(nvidia|amd|apple|geforce|meta)|(instruct\d*|chat|it|hf|v0\.\d|gb)$")


class UnknownNameError(LookupError):
    """No preset is called that. ``near`` has the most similar names."""

    def __init__(self, name: str, near: list[str]) -> None:
        super().__init__(name)
        self.near = near


def squeezed(name: str) -> str:
    """Lower case, without publisher, separators, brand and chat suffixes."""
    plain = re.sub(r"[^a-z0-9.]", "", name.rsplit("/", 1)[-1].lower())
    for _ in range(3):
        plain = _DRESSING.sub("", plain)
    return plain


def find(table: Mapping[str, Preset], name: str) -> Preset:
    """The preset called ``name``, generously. Raises UnknownNameError."""
    wanted = squeezed(name)
    by_name = {squeezed(key): key for key in table}
    key = by_name.get(wanted) or by_name.get(f"rtx{wanted}") or ALIASES.get(wanted, "")
    if key not in table:
        raise UnknownNameError(name, [by_name[near] for near in difflib.get_close_matches(wanted, by_name, 4, 0.4)])
    return table[key]
