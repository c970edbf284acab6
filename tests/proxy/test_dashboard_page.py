import re
from importlib.resources import files

from policies.events import Arrived, Dispatched, Finished, FirstToken, Joined
from policies.fleet import Fleet, advance
from policies.settings import PolicySettings
from policies.snapshot import snapshot
from proxy.outcome import Outcome

PAGE = files("proxy.pages").joinpath("dashboard.html").read_text(encoding="utf-8")
SCRIPT = PAGE[PAGE.index("<script>") :]

FROM_THE_APPLICATION = {"recent", "version"}
"""What ``/admin/state`` adds to the judgement's snapshot."""


def names_in(found: object) -> set[str]:
    if isinstance(found, dict):
        return set(found).union(*map(names_in, found.values()))
    return set().union(*map(names_in, found)) if isinstance(found, list) else set()


def state() -> dict[str, object]:
    fleet = Fleet(PolicySettings())
    for number, (name, lane) in enumerate([("spec-1", "speculative"), ("plain-1", "plain")]):
        advance(fleet, Joined(1.0, name, lane, ("qwen",), "vllm", 3))
        advance(fleet, Arrived(2.0, name, "qwen", "coder", "chat", 4000, stream=True))
        advance(fleet, Dispatched(2.0, name, name))
        advance(fleet, FirstToken(2.2, name))
        advance(fleet, Finished(3.5 + number, name, prompt_tokens=1000, completion_tokens=101, events=100, steps=40,
                                draft_tokens=120, accepted_tokens=60))  # fmt: skip
    # A plain backend that drafts is one of the alarms, so that there is one to look at.
    state = snapshot(fleet, 10_000.0)
    assert state["alarms"]
    return state


def test_the_page_needs_nothing_from_anywhere() -> None:
    assert set(re.findall(r"https?://[^\"'\s]+", PAGE)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|script|img)[^>]+(src|href)=(?!\"data:)", PAGE)
    assert re.findall(r"fetch\(\"([^\"]+)\"", SCRIPT) == ["admin/state"]


def test_what_clients_say_never_becomes_markup() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", SCRIPT)


def test_the_page_reads_only_what_the_state_has() -> None:
    told = state()
    known = names_in(told) | set(Outcome.__struct_fields__) | {"class", "output_tokens", "at"}
    assert set(re.findall(r"\bstate\.(\w+)", SCRIPT)) <= set(told) | FROM_THE_APPLICATION
    assert set(re.findall(r"\b(?:one|figures|predictor|alarm)\.(\w+)", SCRIPT)) <= known


def test_every_verdict_and_state_has_its_colour() -> None:
    for word in ("pays", "does not pay", "probing", "unknown", "serving", "cold", "busy", "stalled", "open", "half-open", "draining"):  # fmt: skip
        assert re.search(rf"[\"{{ ]{word}\"?: \"", SCRIPT), word
