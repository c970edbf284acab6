"""Draft and target: can one draft for the other?

Drafting hands over token *ids*. If id 1234 means ``the`` in one model and ``}`` in the other, engines that check only the
size of the vocabulary accept the pair: every draft is nonsense, nearly all are rejected, the answers stay right and the
speed is gone. Engines that do not verify against the target's own distribution, or convert ids wrongly, emit garbage
instead. Neither says a word about it.
"""

from collections.abc import Iterator, Mapping

from proxy.checkup.finding import Finding, fault, fine, unchecked, warning
from proxy.checkup.model_files import Tokenized

PADDING = 128
"""llama.cpp takes vocabularies that differ by so many unused ids at the end (``SPEC_VOCAB_MAX_SIZE_DIFFERENCE``)."""
GARBAGE = "drafts are ids: with another meaning they are rejected at best and garbage at worst, silently"
SAME_FAMILY = "take a draft model of the target's own family and generation, with an unchanged tokenizer"


def vocabulary(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """The same id means the same token."""
    name = "vocabulary"
    ours, theirs = target.vocabulary, draft.vocabulary
    if ours is None or theirs is None:
        yield unchecked(name, f"{_silent(ours, target, draft)} does not show its vocabulary", "give its file or folder")
        return
    moved = sum(1 for token, number in theirs.items() if ours.get(token, number) != number)
    alone, missing = len(theirs.keys() - ours.keys()), len(ours.keys() - theirs.keys())
    if moved:
        yield fault(
            name, f"{moved} of {len(theirs)} draft tokens have another id in the target; {GARBAGE}", SAME_FAMILY
        )
    elif alone + missing > PADDING or _contradict(ours, theirs):
        sentence = f"{alone} tokens only the draft has, {missing} only the target has (of {len(ours)}); {GARBAGE}"
        yield fault(name, sentence, SAME_FAMILY)
    elif alone or missing:
        yield warning(
            name,
            f"{alone + missing} tokens are in one vocabulary only, all others agree; vLLM wants equal sizes",
            "llama.cpp takes it (up to 128); elsewhere resize the draft's embeddings",
        )
    else:
        yield fine(name, f"all {len(ours)} tokens have the same id")


def _silent(ours: object, target: Tokenized, draft: Tokenized) -> str:
    return target.source if ours is None else draft.source


def _contradict(ours: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    """Two different tokens claim one id."""
    by_id = {number: token for token, number in ours.items()}
    return any(by_id.get(number, token) != token for token, number in theirs.items())


def special_tokens(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """Beginning, end and padding agree, and so does who adds them."""
    name = "special tokens"
    both = target.special.keys() & draft.special.keys()
    if not both:
        yield unchecked(
            name, "at least one side does not tell its special tokens", "give the model folder or GGUF file"
        )
        return
    different = [what for what in sorted(both) if target.special[what] != draft.special[what]]
    for what in different:
        sides = f"{target.special[what]} in the target, {draft.special[what]} in the draft"
        if what == "pad":
            yield warning(name, f"pad is {sides}", "harmless for drafting; make them equal when you quantise again")
        elif what.startswith("add_"):
            sentence = (
                f"{what} is {sides}; llama.cpp then translates every draft through text (57 → 7 tokens/s was seen)"
            )
            yield fault(name, sentence, "take files of one conversion, or correct it with gguf_set_metadata")
        else:
            yield fault(name, f"{what} is {sides}: answers end wrongly in drafts", SAME_FAMILY)
    if not different:
        yield fine(name, f"{', '.join(sorted(both))} agree")


def merges(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """Text is cut in the same way."""
    name = "merges"
    if target.merges is None and draft.merges is None and None not in (target.vocabulary, draft.vocabulary):
        yield fine(name, "neither tokenizer works by merges")
    elif target.merges is None or draft.merges is None:
        yield unchecked(name, "only one side has a merge list (the other is of another kind, or a server)")
    elif target.merges == draft.merges:
        yield fine(name, f"all {len(target.merges)} merges are the same, in the same order")
    else:
        at = next(
            (n for n, (one, other) in enumerate(zip(target.merges, draft.merges, strict=False)) if one != other),
            min(len(target.merges), len(draft.merges)),
        )
        counts = f"{len(target.merges)} in the target, {len(draft.merges)} in the draft"
        yield fault(
            name,
            f"merges differ from number {at} on ({counts}): the draft expects text cut in other pieces",
            SAME_FAMILY,
        )


def added_tokens(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """Control, tool and thinking markers agree."""
    name = "added tokens"
    if target.added is None or draft.added is None:
        yield unchecked(name, "at least one side does not tell its added tokens")
        return
    ours, theirs = target.added, draft.added
    moved = sorted(token for token in ours.keys() & theirs.keys() if ours[token] != theirs[token])
    missing = sorted(ours.keys() - theirs.keys())
    if moved:
        yield fault(name, f"{len(moved)} markers have another id, first {moved[0]!r}: {GARBAGE}", SAME_FAMILY)
    elif missing:
        sentence = f"the draft does not know {len(missing)} markers of the target, first {missing[0]!r}: no draft survives them"
        yield warning(name, sentence, "take a draft model of the same generation (tools, thinking)")
    else:
        yield fine(name, f"all {len(ours)} markers of the target are known under the same ids")


def splitting(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """Text is prepared in the same way before it is cut."""
    name = "text preparation"
    told, kinds = (target.splitting, draft.splitting), {str(side.splitting)[:1] == "{" for side in (target, draft)}
    if None in told or len(kinds) > 1:
        yield unchecked(name, "normaliser and pre-tokenizer are comparable only among files of one kind")
    elif told[0] == told[1]:
        yield fine(name, "normaliser and pre-tokenizer are the same")
    else:
        yield warning(
            name, "normaliser or pre-tokenizer differ: numbers, spaces or accents are cut differently", SAME_FAMILY
        )


def embedding_rows(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """Every id the target can emit exists for the draft."""
    name = "embedding rows"
    if target.vocabulary is None or draft.rows is None:
        yield unchecked(name, "the draft's number of embedding rows or the target's vocabulary is not told")
        return
    highest = max(target.vocabulary.values())
    if highest >= draft.rows:
        sentence = f"the target emits ids up to {highest}, the draft has {draft.rows} rows: a crash or silent garbage"
        yield fault(name, sentence, SAME_FAMILY)
    else:
        yield fine(name, f"ids up to {highest} fit into {draft.rows} rows")


def size(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """The draft is small enough to be worth its time."""
    name = "size ratio"
    ratio, how = _ratio(target, draft)
    if ratio is None:
        yield unchecked(name, "neither parameter counts nor file sizes of both are told")
    elif ratio > 0.6:
        sentence = f"the draft has {ratio:.0%} of the target's {how}; one as big as its target was measured 2.5× slower"
        yield fault(name, sentence, "take one of a tenth or less")
    elif ratio > 0.25:
        yield warning(
            name,
            f"the draft has {ratio:.0%} of the target's {how}: little is left to gain",
            "take one of a tenth or less",
        )
    elif ratio < 0.002:
        yield warning(
            name,
            f"the draft has {ratio:.2%} of the target's {how}: expect low acceptance",
            "measure with draftlane bench",
        )
    else:
        yield fine(name, f"the draft has {ratio:.1%} of the target's {how}")


def _ratio(target: Tokenized, draft: Tokenized) -> tuple[float | None, str]:
    if target.parameters and draft.parameters:
        return draft.parameters / target.parameters, "parameters"
    if target.file_bytes and draft.file_bytes:
        return draft.file_bytes / target.file_bytes, "file size"
    return None, ""


def draft_context(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """The draft can follow as far as the target goes."""
    name = "draft context"
    if target.context_tokens is None or draft.context_tokens is None:
        yield unchecked(name, "at least one context length is not told")
    elif draft.context_tokens < target.context_tokens:
        yield warning(
            name,
            f"the draft sees {draft.context_tokens} tokens, the target {target.context_tokens}: longer requests draft badly",
            "limit both to the shorter length (max_model_len), or take another draft",
        )
    else:
        yield fine(name, f"the draft sees {draft.context_tokens} tokens, the target {target.context_tokens}")


def cut_alike(target: Tokenized, draft: Tokenized) -> Iterator[Finding]:
    """Two servers cut the same texts into the same ids."""
    name = "probe texts"
    both = target.probes.keys() & draft.probes.keys()
    if not both:
        yield unchecked(name, "only servers with /tokenize can be probed, and both sides must be one")
        return
    different = sorted(text for text in both if target.probes[text] != draft.probes[text])
    if different:
        yield fault(
            name,
            f"{len(different)} of {len(both)} texts are cut differently: {', '.join(different)}; {GARBAGE}",
            SAME_FAMILY,
        )
    else:
        yield fine(name, f"{len(both)} texts are cut into the same ids: {', '.join(sorted(both))}")
