"""Writes docs/faults.md from the matrix that the tests play: ``python -m tests.faults.page``."""

from pathlib import Path

from policies.settings import PolicySettings
from proxy.config_sections import Timeouts
from proxy.errors import FAULT_KINDS, KINDS
from tests.faults.matrix import CELLS, FAILURES, PHASES, Cell

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
WHY_NOT = {
    "refused": "only a connection can be refused",
    "DNS failure": "only a connection needs a name",
    "wrong length": "a handshake has no length",
    "slow trickle": "a slow handshake is `stalled` when it takes longer than `timeouts.connect_seconds`",
}
"""Failures that some phases cannot meet."""


def told(cell: Cell) -> str:
    """One cell of the table."""
    if cell.fault is None:
        return "passes; the surplus is dropped" if cell.failure == "wrong length" else "passes"
    return f"{'moves' if cell.unseen else 'cut'} · `{cell.fault}`"


def table() -> str:
    """Failures down, phases across."""
    cells = {(cell.phase, cell.failure): told(cell) for cell in CELLS}
    lines = ["| | " + " | ".join(PHASES) + " |", "|---" * (len(PHASES) + 1) + "|"]
    lines += [
        f"| **{failure}** | " + " | ".join(cells.get((phase, failure), "—") for phase in PHASES) + " |"
        for failure in FAILURES
    ]
    return "\n".join(lines)


def faults() -> str:
    """What a client reads when a fault hits the last backend there is."""
    lines = ["| fault | status | `error.code` | message |", "|---|---|---|---|"]
    for fault, (name, message) in FAULT_KINDS.items():
        lines.append(f"| `{fault}` | {KINDS[name].status} | `{KINDS[name].code}` | {message} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    # long: one page of prose
    breaker, admission, timeouts = PolicySettings().breaker, PolicySettings().admission, Timeouts()
    return f"""# Faults

Made by `python -m tests.faults.page` from the matrix in `tests/faults/matrix.py`; a test fails when this page is stale.
`tests/faults/test_matrix.py` plays every cell on real sockets with a scripted backend and a clock under control:
streaming and not, with one backend and with two, on both server forms ({len(CELLS)} cells, {len(CELLS) * 8} plays).

What a backend does wrong (down), and when (across):

{table()}

- **moves**: the client has seen nothing, so the request goes to the next backend; there its answer is the only one the
  client gets. With no other backend the client gets the error of the second table.
  A stream that waits for its first byte is moved earlier than the table says when the watchdog finds that its backend
  hangs and another one is there (fault `stalled`).
- **cut**: the client has seen part of the answer, so nothing is tried again. A stream gets an error event in its own
  dialect, and in any case the connection ends without the end that its framing promises, so that no client takes the
  part for the whole.
- **passes**: nothing is wrong, however slow.
- The word behind is the fault in metrics, journal and log.
- —: cannot happen. {"; ".join(f"{failure}: {why}" for failure, why in WHY_NOT.items())}.

Each play also checks that every counter is back at zero afterwards (requests under way, requests in flight per backend,
the gauge of the metrics page), that the fault was noted once, and that the breaker counted it once.

## What the client reads

{faults()}

## Patience

| setting | seconds | from … to |
|---|---|---|
| `timeouts.connect_seconds` | {timeouts.connect_seconds:g} | connecting, TLS included |
| `timeouts.first_byte_seconds` | {timeouts.first_byte_seconds:g} | request sent … first byte of the answer's body |
| `timeouts.idle_seconds` | {timeouts.idle_seconds:g} | silence in the middle of an answer |
| `timeouts.client_seconds` | {timeouts.client_seconds:g} | a client sends its head, or is silent within its body: then 408 |

Patience with backends is looked at four times a second, with clients once. There is no limit on the whole of an answer. A
client that reads slowly holds its backend up and is never taken for a silent backend.

## The breaker and the retry budget

{breaker.failures_to_open} failures in a row open a backend's breaker for {breaker.open_seconds:g} s; a failed try doubles the
rest up to {breaker.longest_open_seconds:g} s. Then {breaker.half_open_probes} request at a time tries it, and one success closes the
breaker. A 4xx never counts, nor do 429 and 503 (load), 501 (the surface is missing), nor a client that left. A backend
from which the watchdog took requests away rests at once. Retries are limited to {admission.retry_share:.0%} of arrivals, with {admission.retry_burst} at once
after a quiet time, so that an outage is not doubled. `tests/faults/test_breaker_and_budget.py` holds the gateway to all this.
"""


def unmet() -> list[tuple[str, str]]:
    """Cells that are neither played nor explained."""
    played = {(cell.phase, cell.failure) for cell in CELLS}
    return [
        (phase, failure)
        for phase in PHASES
        for failure in FAILURES
        if (phase, failure) not in played and failure not in WHY_NOT
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
