"""Does the speculative lane speculate, the plain one not, and would anybody notice?"""

from collections.abc import Iterator

from proxy.checkup.facts import Facts, Lane
from proxy.checkup.finding import Finding, fault, fine, unchecked, warning

LEAST_DRAFTED, ALARM_RATE, NOISE_RATE = 30, 0.40, 0.05
"""Tokens drafted before a rate is worth a word; the folk alarm; what mismatched tokenizers reach by chance."""
START_WITH_IT = "vLLM: --speculative-config '{…}'; llama.cpp: --spec-type ngram-mod; SGLang: --speculative-algorithm NGRAM or EAGLE3"


def drafted(lane: Lane) -> int | None:
    """Tokens drafted during the probe: by the counters, else by the answer's own word."""
    before, after = lane.probe.before, lane.probe.after
    if after is not None and after.draft_tokens is not None:
        started = before.draft_tokens if before is not None and before.draft_tokens is not None else 0.0
        return int(after.draft_tokens - started)
    return lane.probe.draft_tokens


def accepted(lane: Lane) -> int | None:
    """The same for accepted tokens."""
    before, after = lane.probe.before, lane.probe.after
    if after is not None and after.accepted_tokens is not None:
        started = before.accepted_tokens if before is not None and before.accepted_tokens is not None else 0.0
        return int(after.accepted_tokens - started)
    return lane.probe.accepted_tokens


def speculates(facts: Facts) -> Iterator[Finding]:
    """Drafts were made while the probe ran."""
    for lane in facts.lanes:
        if lane.lane != "speculative" or lane.found is None:
            continue
        count, says = drafted(lane), lane.found.speculative
        if lane.probe.fault:
            yield unchecked("speculation on", f"the probe stream failed: {lane.probe.fault}", about=lane.name)
        elif count:
            yield fine("speculation on", f"{count} tokens were drafted for one fresh stream", lane.name)
        elif says is False:
            yield fault("speculation on", "the engine says that it does not speculate", START_WITH_IT, lane.name)
        elif count == 0 and lane.found.drafts_always is not False and says is None:
            sentence = f"0 tokens were drafted in {lane.probe.completion_tokens} of a fresh, repetitive text"
            yield fault("speculation on", sentence, START_WITH_IT, lane.name)
        elif count == 0:
            yield warning(
                "speculation on",
                "it is configured, but a fresh repetitive text drew no draft",
                "an n-gram drafter may need a shorter match (prompt_lookup_min, --spec-ngram-mod-n-match)",
                lane.name,
            )
        else:
            yield unchecked("speculation on", "neither metrics nor answers tell of drafts", about=lane.name)


def plain_is_plain(facts: Facts) -> Iterator[Finding]:
    """No drafts in the plain lane."""
    for lane in facts.lanes:
        if lane.lane != "plain" or lane.found is None:
            continue
        count = drafted(lane)
        fix = "start it without speculation (llama.cpp: --spec-type none)"
        if count:
            yield fault(
                "plain is plain", f"{count} tokens were drafted for one stream in the plain lane", fix, lane.name
            )
        elif lane.found.speculative:
            yield fault("plain is plain", "the engine says that it speculates", fix, lane.name)
        elif lane.found.speculative is None and count is None:
            yield unchecked("plain is plain", "neither metrics nor answers tell of drafts", about=lane.name)
        else:
            yield fine("plain is plain", "no drafts", lane.name)


def acceptance(facts: Facts) -> Iterator[Finding]:
    """Drafts are accepted at a rate that a matching draft model reaches."""
    for lane in facts.lanes:
        if lane.lane != "speculative" or lane.found is None:
            continue
        made, kept = drafted(lane), accepted(lane)
        if made is None or kept is None or made < LEAST_DRAFTED:
            yield unchecked("acceptance", f"{made or 0} drafted tokens are too few to judge", about=lane.name)
            continue
        rate, figure = kept / made, f"{kept} of {made} drafted tokens accepted on easy text ({kept / made:.0%})"
        if rate < NOISE_RATE:
            yield fault(
                "acceptance",
                f"{figure}: no better than chance",
                "compare the tokenizers: doctor --target --draft",
                lane.name,
            )
        elif rate < ALARM_RATE:
            yield warning("acceptance", figure, "measure with draftlane bench; try fewer draft tokens", lane.name)
        else:
            yield fine("acceptance", figure, lane.name)


def metrics(facts: Facts) -> Iterator[Finding]:
    """The metrics page is there and moves."""
    for lane in facts.lanes:
        if lane.found is None:
            continue
        before, after = lane.probe.before, lane.probe.after
        if not lane.found.metrics:
            fix = "llama.cpp: --metrics; SGLang: --enable-metrics; vLLM: has it unless --disable-log-stats is set"
            yield fault("metrics", "no readable metrics page: load, acceptance and alarms are blind", fix, lane.name)
        elif lane.probe.fault or before is None or after is None or after.generated_tokens is None:
            yield unchecked("metrics", "it could not be read around a finished stream", about=lane.name)
        elif after.generated_tokens <= (before.generated_tokens or 0.0):
            fix = "is it another engine's page, or cached by a proxy? point the gateway at the engine itself"
            yield fault("metrics", "generated tokens did not move while a stream was answered", fix, lane.name)
        else:
            moved = int(after.generated_tokens - (before.generated_tokens or 0.0))
            yield fine("metrics", f"moved by {moved} generated tokens", lane.name)


def per_request(facts: Facts) -> Iterator[Finding]:
    """Answers tell of their own drafts."""
    for lane in facts.lanes:
        if lane.lane != "speculative" or lane.found is None or lane.probe.fault:
            continue
        if lane.probe.tells:
            yield fine("per-request metrics", "answers carry their own draft figures", lane.name)
        elif lane.found.engine == "vllm":
            yield warning(
                "per-request metrics",
                "answers do not say how many drafts they took: acceptance per class must be guessed from events and counters",
                "start vLLM with --per-request-spec-decode-metrics summary",
                lane.name,
            )
        else:
            yield unchecked("per-request metrics", f"not known how {lane.found.engine} would tell", about=lane.name)


def usage(facts: Facts) -> Iterator[Finding]:
    """Streams count their tokens."""
    for lane in facts.lanes:
        if lane.found is None or lane.probe.fault:
            continue
        if lane.probe.completion_tokens:
            figure = f"{lane.probe.completion_tokens} tokens in {lane.probe.events} events"
            yield fine("usage in streams", figure, lane.name)
        else:
            sentence = "no usage although stream_options.include_usage was set: speed per token is unknown"
            yield warning(
                "usage in streams", sentence, "upgrade the engine, or remove the proxy that drops it", lane.name
            )
