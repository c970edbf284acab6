"""Every check there is, in the order of the page."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from proxy.checkup import flags, manners, pair, speculation, twins
from proxy.checkup.facts import Facts
from proxy.checkup.finding import Finding
from proxy.checkup.model_files import Tokenized


class Check(NamedTuple):
    """A question, who asks it, and the function that looks."""

    family: str
    """``pair``, ``lanes`` or ``flags``: which facts it needs."""
    name: str
    look: Callable[[Facts], Iterator[Finding]]


def of_pair(look: Callable[[Tokenized, Tokenized], Iterator[Finding]]) -> Callable[[Facts], Iterator[Finding]]:
    """A check of draft and target as a check of all facts."""

    def looked(facts: Facts) -> Iterator[Finding]:
        if facts.target is not None and facts.draft is not None:
            yield from look(facts.target, facts.draft)

    return looked


CHECKS: tuple[Check, ...] = (
    Check("pair", "vocabulary", of_pair(pair.vocabulary)),
    Check("pair", "special tokens", of_pair(pair.special_tokens)),
    Check("pair", "merges", of_pair(pair.merges)),
    Check("pair", "added tokens", of_pair(pair.added_tokens)),
    Check("pair", "text preparation", of_pair(pair.splitting)),
    Check("pair", "embedding rows", of_pair(pair.embedding_rows)),
    Check("pair", "probe texts", of_pair(pair.cut_alike)),
    Check("pair", "size ratio", of_pair(pair.size)),
    Check("pair", "draft context", of_pair(pair.draft_context)),
    Check("lanes", "reachable", twins.reachable),
    Check("lanes", "same model", twins.same_model),
    Check("lanes", "same context", twins.same_context),
    Check("lanes", "same tokenizer", twins.same_tokens),
    Check("lanes", "same template", twins.same_template),
    Check("lanes", "same answers", twins.same_answers),
    Check("lanes", "speculation on", speculation.speculates),
    Check("lanes", "plain is plain", speculation.plain_is_plain),
    Check("lanes", "acceptance", speculation.acceptance),
    Check("lanes", "metrics", speculation.metrics),
    Check("lanes", "per-request metrics", speculation.per_request),
    Check("lanes", "usage in streams", speculation.usage),
    Check("lanes", "refusals", manners.refusals),
    Check("lanes", "disconnect", manners.disconnect),
    Check("flags", "flags", lambda facts: flags.flags(facts.flags)),
)


def examine(facts: Facts) -> list[Finding]:
    """All findings of the checks whose facts were asked for."""
    asked = {
        "pair": facts.target is not None and facts.draft is not None,
        "lanes": bool(facts.lanes),
        "flags": facts.flags is not None,
    }
    return [finding for check in CHECKS if asked[check.family] for finding in check.look(facts)]
