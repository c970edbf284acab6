"""The page on bench names every trap with its limit."""

import re
from pathlib import Path

import pytest

from proxy.proof.findings import TRAPS

PAGE = (Path(__file__).parents[3] / "docs" / "bench.md").read_text(encoding="utf-8")
ROWS = {
    name: row
    for row in PAGE.splitlines()
    if row.startswith("| `")
    for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])
}


@pytest.mark.parametrize("name", TRAPS)
def test_every_trap_is_on_the_page(name: str) -> None:
    trap, row = TRAPS[name], ROWS[name]
    assert trap.severity in row
    assert ("\\*" in row) == trap.allowed
    if trap.limit:
        assert re.search(rf"\b{trap.limit * 100:.0f} %|\b{trap.limit:g}\b", row), row
