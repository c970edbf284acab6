"""What can fool a comparison: each way with a name, a limit and what follows from it."""

from typing import NamedTuple

WITHHELD = "withheld"
MARKED = "marked"


class Trap(NamedTuple):
    """One way to be fooled. ``severity`` is what follows: the verdict is withheld, or the report marked."""

    name: str
    severity: str
    limit: float | None
    """The figure from which it counts; None where there is no figure."""
    why: str
    """One sentence for the documentation and the report."""
    allowed: bool = False
    """``--allow-repeats`` turns withholding into marking."""


TRAPS: dict[str, Trap] = {
    trap.name: trap
    for trap in (
        Trap(
            "repeated-prompts", WITHHELD, 0.02, "A prompt sent again is answered from memory by n-gram drafters.", True
        ),
        Trap("near-duplicate-prompts", WITHHELD, 0.1, "Prompts with the same words draw the same answers.", True),
        Trap("shared-text", WITHHELD, 0.2, "Text of earlier prompts is cached and drafted from.", True),
        Trap(
            "padded-prompts", WITHHELD, 0.2, "A prompt filled up with itself teaches the drafter its own answer.", True
        ),
        Trap(
            "some-padded-prompts",
            MARKED,
            0.02,
            "A few prompts repeat themselves and may flatter n-gram drafters.",
            True,
        ),
        Trap("repeated-outputs", WITHHELD, 0.1, "Answers that copy earlier answers can be drafted from memory.", True),
        Trap("looping-outputs", MARKED, 0.2, "An answer caught in a loop is drafted perfectly and worth nothing."),
        Trap(
            "grows-with-order",
            WITHHELD,
            1.15,
            "The gain of a drafter that learns from the run is not that of fresh traffic.",
            True,
        ),
        Trap("shrinks-with-order", MARKED, 1.15, "A gain that fades was measured on something that changed."),
        Trap("machine-drift", MARKED, 1.15, "The plain arm itself changed speed during the run."),
        Trap(
            "engine-memory",
            MARKED,
            1.2,
            "This engine drafts from earlier requests; the figures hold for text not seen before.",
        ),
        Trap("prefix-cache", WITHHELD, 0.1, "One arm skipped prompt work that the other had to do."),
        Trap(
            "cached-prompts",
            MARKED,
            0.2,
            "Prompt work was skipped on both arms: first tokens come earlier than on fresh prompts.",
        ),
        Trap("ignore-eos", MARKED, None, "Forced to go on after their end, models loop, and loops are easy to draft."),
        Trap(
            "answers-cut",
            MARKED,
            0.9,
            "Nearly all answers ran into max_tokens, as with ignore_eos: real answers end by themselves.",
        ),
        Trap("different-models", WITHHELD, None, "Arms that serve different weights compare models, not speculation."),
        Trap("different-names", MARKED, None, "The arms call their model differently; make sure that it is the same."),
        Trap(
            "different-answers", WITHHELD, 0.5, "At temperature 0 the same weights, template and sampling begin alike."
        ),
        Trap("different-tokenizers", WITHHELD, 0.0, "The same prompt is a different number of tokens on each arm."),
        Trap(
            "different-contexts",
            WITHHELD,
            None,
            "Arms with different context lengths share their memory out differently.",
        ),
        Trap(
            "different-sampling",
            WITHHELD,
            None,
            "Different sampling defaults change what is drafted and how long answers are.",
        ),
        Trap("different-lengths", MARKED, 1.3, "One arm writes longer answers; times are compared at equal length."),
        Trap("not-speculating", WITHHELD, None, "The arm called speculative does not speculate."),
        Trap("never-drafted", MARKED, None, "The drafter found nothing to propose: there is no acceptance, not 0 %."),
        Trap("plain-speculates", WITHHELD, None, "The arm called plain speculates."),
        Trap("acceptance-unknown", MARKED, None, "Nothing tells whether the speculative arm drafts."),
        Trap("other-traffic", MARKED, 0.05, "Somebody else used an engine during the run."),
        Trap("no-usage", WITHHELD, 0.5, "Without token counts there is no time per token; chunks are not tokens."),
        Trap("failures", WITHHELD, 0.2, "Requests that fail are not in the figures."),
        Trap("some-failures", MARKED, 0.0, "Requests that fail are not in the figures."),
        Trap("interrupted", MARKED, None, "The run was stopped before its end."),
    )
}


class Finding(NamedTuple):
    """A trap that was walked into."""

    name: str
    severity: str
    sentence: str
    figure: float | None = None
    limit: float | None = None


def found(name: str, detail: str, figure: float | None = None) -> Finding:
    """A finding: what was seen, and why it matters."""
    trap = TRAPS[name]
    return Finding(name, trap.severity, f"{detail} {trap.why}", figure, trap.limit)


def pardoned(finding: Finding, allow_repeats: bool) -> Finding:
    """Marked instead of withheld where the operator asked for it."""
    return finding._replace(severity=MARKED) if allow_repeats and TRAPS[finding.name].allowed else finding
