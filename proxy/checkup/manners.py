"""What a lane refuses, and whether it notices that nobody listens any more."""

from collections.abc import Iterator

from proxy.checkup.facts import Facts
from proxy.checkup.finding import Finding, fault, fine, unchecked, warning
from proxy.engines import ENGINES

SLOW_SECONDS = 2.0


def refusals(facts: Facts) -> Iterator[Finding]:
    """What the speculative lane refuses, the plain lane takes, and the gateway knows of."""
    plain = facts.lane("plain")
    for lane in facts.lanes:
        if lane.found is None or not lane.refusals:
            continue
        drafts = sorted(name for name, what in lane.refusals.items() if what.because_of_drafts)
        other = sorted(name for name, what in lane.refusals.items() if what.status != 200 and name not in drafts)
        if lane.lane == "plain" and drafts:
            yield fault(
                "refusals",
                f"the plain lane refuses {', '.join(drafts)} because it speculates",
                "start it without speculation",
                lane.name,
            )
        elif drafts:
            yield from _because_of_drafts(drafts, lane.found.engine, lane.name, plain is not None)
        for name in other:
            what = lane.refusals[name]
            sentence = f"{name} is refused with {what.status}: {what.message or 'no reason given'}"
            yield warning("refusals", sentence, "clients that send it will fail in this lane", lane.name)
        if not drafts and not other:
            yield fine("refusals", f"takes {', '.join(lane.refusals)}", lane.name)


def _because_of_drafts(drafts: list[str], engine: str, about: str, twin: bool) -> Iterator[Finding]:
    unknown = [name for name in drafts if name not in ENGINES[engine].refuses]
    listed = ", ".join(drafts)
    if not twin:
        yield warning(
            "refusals",
            f"{listed} is refused while it speculates, and no plain lane can take it",
            "add a plain lane",
            about,
        )
    elif unknown:
        fix = f"set refuses = {sorted({*ENGINES[engine].refuses, *drafts})!r} for this backend"
        yield warning(
            "refusals",
            f"{', '.join(unknown)} is refused while it speculates, which the gateway does not expect",
            fix,
            about,
        )
    else:
        yield fine(
            "refusals",
            f"{listed} is refused while it speculates, as expected: such requests go to the plain lane",
            about,
        )


def disconnect(facts: Facts) -> Iterator[Finding]:
    """A client that left costs nothing more."""
    for lane in facts.lanes:
        if lane.found is None:
            continue
        left = lane.hang_up
        if left.fault:
            yield unchecked("disconnect", left.fault, about=lane.name)
        elif left.seconds is None:
            sentence = f"{left.during} request(s) still ran long after the client had left"
            yield fault(
                "disconnect",
                sentence,
                "remove the proxy that keeps the connection open, or upgrade the engine",
                lane.name,
            )
        elif left.seconds > SLOW_SECONDS:
            yield warning("disconnect", f"noticed after {left.seconds:.1f} s", "upgrade the engine", lane.name)
        else:
            yield fine("disconnect", f"noticed after {left.seconds:.1f} s", lane.name)
