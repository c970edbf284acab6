"""The lanes: one model in two ways, or two models?"""

from collections.abc import Iterator
from itertools import takewhile
from os.path import basename

from proxy.checkup.facts import Facts, Lane
from proxy.checkup.finding import Finding, fault, fine, unchecked, warning
from proxy.engines.habits import field, whole

SAME_ENGINE_ARGS = "start both engines from the same weights and with the same flags, but for speculation"
DIVERGES_AT_ONCE, TWINS = 0.15, 0.98
"""Mean common prefix of greedy answers, as a share of the answer: below the first the models differ, above the second
they are the same. In between, rounding explains it: batch shapes change the order of sums."""


def both(facts: Facts) -> tuple[Lane, Lane] | None:
    """The speculative and the plain lane, where both answered."""
    fast, plain = facts.lane("speculative"), facts.lane("plain")
    return (fast, plain) if fast and plain else None


def reachable(facts: Facts) -> Iterator[Finding]:
    """Every backend answers, and no address serves both lanes."""
    for lane in facts.lanes:
        if lane.found is None:
            yield fault(
                "reachable", f"nothing answers: {lane.fault}", "start the engine, or correct its URL", lane.name
            )
        else:
            version = f" {lane.found.version}" if lane.found.version else ""
            yield fine("reachable", f"{lane.found.engine}{version} answers", lane.name)
    urls = [lane.url.rstrip("/").removesuffix("/v1") for lane in facts.lanes]
    if len(set(urls)) < len(urls):
        yield fault("reachable", "one address is named for two backends", "give each lane an engine of its own")


def same_model(facts: Facts) -> Iterator[Finding]:
    """Names, and where the engine tells, parameters."""
    if (lanes := both(facts)) is None:
        yield unchecked("same model", "it takes a speculative and a plain lane that answer")
        return
    fast, plain = lanes
    weights = [{name: card_number(lane, name) for name in ("n_params", "n_vocab", "n_embd")} for lane in lanes]
    for name in weights[0]:
        one, other = weights[0][name], weights[1][name]
        if one and other and one != other:
            yield fault(
                "same model", f"{name} is {one} in the speculative lane, {other} in the plain lane", SAME_ENGINE_ARGS
            )
            return
    names = [{short(model) for model in lane.found.models} if lane.found else set() for lane in lanes]
    if names[0] & names[1]:
        yield fine("same model", f"both serve {', '.join(sorted(names[0] & names[1]))}")
    elif fast.model and plain.model and short(fast.model) == short(plain.model):
        yield fine("same model", f"both serve {short(fast.model)}")
    else:
        listed = " against ".join(", ".join(sorted(each)) or "nothing" for each in names)
        yield fault(
            "same model", f"no model is served by both: {listed}", SAME_ENGINE_ARGS + "; or map names with renames"
        )


def short(model: str) -> str:
    """A model's name without folders: llama.cpp calls it by its file's path."""
    return basename(model.rstrip("/"))


def card_number(lane: Lane, name: str) -> int | None:
    """A figure of the first model card's ``meta``."""
    cards = lane.found.cards if lane.found else ()
    return whole(field(cards[0], "meta", name)) if cards else None


def same_context(facts: Facts) -> Iterator[Finding]:
    """The longest request one lane takes, the other takes too."""
    lanes = both(facts)
    lengths = [lane.found.max_context_tokens for lane in lanes or () if lane.found]
    if lanes is None or None in lengths:
        yield unchecked("same context", "at least one lane does not tell its context length")
    elif lengths[0] == lengths[1]:
        yield fine("same context", f"{lengths[0]} tokens in both lanes")
    else:
        yield fault(
            "same context",
            f"{lengths[0]} tokens in the speculative lane, {lengths[1]} in the plain lane: longer requests have one way only",
            "set --max-model-len (vLLM), --ctx-size (llama.cpp) or --context-length (SGLang) alike",
        )


def same_tokens(facts: Facts) -> Iterator[Finding]:
    """Both lanes cut texts alike."""
    lanes = both(facts)
    shared = lanes[0].cut.keys() & lanes[1].cut.keys() if lanes else set()
    if lanes is None or not shared:
        yield unchecked("same tokenizer", "not both lanes answer /tokenize")
        return
    odd = sorted(name for name in shared if lanes[0].cut[name] != lanes[1].cut[name])
    if odd:
        sentence = f"{len(odd)} of {len(shared)} texts are cut differently: {', '.join(odd)}"
        yield fault("same tokenizer", sentence, SAME_ENGINE_ARGS)
    else:
        yield fine("same tokenizer", f"{len(shared)} texts are cut into the same ids")


def same_template(facts: Facts) -> Iterator[Finding]:
    """A chat becomes the same prompt."""
    name = "same template"
    if (lanes := both(facts)) is None:
        yield unchecked(name, "it takes a speculative and a plain lane that answer")
        return
    one, other = lanes[0].dressed, lanes[1].dressed
    counts = lanes[0].chat_tokens, lanes[1].chat_tokens
    fix = "give both engines the same --chat-template (and --jinja on llama.cpp)"
    if one is not None and other is not None and type(one) is type(other):
        same = one == other
        if not same:
            yield fault(name, f"the same chat becomes {len(one)} or {len(other)} {_unit(one)}, not the same ones", fix)
    elif None not in counts:
        same = counts[0] == counts[1]
        if not same:
            yield fault(name, f"the same chat has {counts[0]} prompt tokens, or {counts[1]} in the plain lane", fix)
    else:
        yield unchecked(name, "neither the written prompt nor its token count is told by both lanes")
        return
    if same:
        yield fine(name, "the same chat becomes the same prompt")


def _unit(dressed: tuple[int, ...] | str) -> str:
    return "characters" if isinstance(dressed, str) else "tokens"


def same_answers(facts: Facts) -> Iterator[Finding]:
    """Greedy answers agree as far as the engines can promise."""
    name, lanes = "same answers", both(facts)
    if lanes is None or not lanes[0].answers or len(lanes[0].answers) != len(lanes[1].answers):
        yield unchecked(name, "not both lanes answered all questions at temperature 0")
        return
    fast, plain = lanes
    across, itself = agreement(fast.answers, plain.answers), agreement(plain.answers, plain.again)
    figures = f"greedy answers share {across:.0%} of their beginning; the plain lane agrees with itself to {itself:.0%}"
    poor = any(lane.found and lane.found.engine == "llamacpp" for lane in lanes)
    if across >= TWINS:
        yield fine(name, figures)
    elif across < DIVERGES_AT_ONCE and itself > 4 * across:
        yield fault(name, f"{figures}: these are different weights, or another quantisation", SAME_ENGINE_ARGS)
    elif poor or across >= itself - 0.1:
        yield fine(name, f"{figures}: as alike as this engine's greedy text can be (rounding, caches)")
    else:
        yield warning(
            name, f"{figures}: vLLM's lanes usually agree", "compare quantisation, dtype and attention backend"
        )


def agreement(ours: tuple[str, ...], theirs: tuple[str, ...]) -> float:
    """Mean length of the common beginning, as a share of the longer answer."""
    shares = [shared(*pair) / max(len(pair[0]), len(pair[1]), 1) for pair in zip(ours, theirs, strict=False)]
    return sum(shares) / len(shares) if shares else 0.0


def shared(one: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
