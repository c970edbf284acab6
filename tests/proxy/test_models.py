"""Names of models: aliases, renames, adapters, unknown names, and the merged list."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proxy import backends as backends_module
from proxy.engines.base import Discovered
from proxy.errors import GatewayError
from proxy.models import Models
from tests.live.lanes import configured

QWEN = {
    "id": "qwen",
    "object": "model",
    "created": 5,
    "owned_by": "vllm",
    "root": "Qwen/Qwen3-32B",
    "max_model_len": 40960,
    "permission": [{"id": "p"}],
}
LORA = {
    "id": "qwen-legal",
    "object": "model",
    "created": 6,
    "owned_by": "vllm",
    "parent": "qwen",
    "max_model_len": 40960,
}


def models(
    backends: Mapping[str, Mapping[str, object]],
    found: Mapping[str, Sequence[dict[str, object]]],
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> Models:
    """Backends by name with their settings; ``found`` is what those that are up say of themselves."""
    lanes = [
        {"name": name, "url": "http://127.0.0.1:9", "lane": "speculative" if number == 0 else "plain", **settings}
        for number, (name, settings) in enumerate(backends.items())
    ]
    names = [{"name": model, "aliases": list(others)} for model, others in (aliases or {}).items()]
    config = configured({"backends": lanes, "models": names})
    made = backends_module.build(config)
    for name, cards in found.items():
        made[name].learn(Discovered("vllm", tuple(str(card["id"]) for card in cards), False, cards=tuple(cards)))
    return Models(config, made)


def by_id(found: Models) -> dict[str, dict[str, Any]]:
    cards = found.cards()
    assert len({card["id"] for card in cards}) == len(cards), "each model once"
    return {str(card["id"]): card for card in cards}


TWINS: dict[str, dict[str, object]] = {"spec": {}, "plain": {}}


def test_twins_are_one_entry_with_all_that_the_engine_says() -> None:
    assert by_id(models(TWINS, {"spec": [QWEN], "plain": [QWEN]})) == {"qwen": QWEN}


def test_one_backend_down_does_not_break_the_list() -> None:
    assert by_id(models(TWINS, {"plain": [QWEN, LORA]})) == {"qwen": QWEN, "qwen-legal": LORA}


def test_all_backends_down_is_an_empty_list_or_what_is_configured() -> None:
    assert models(TWINS, {}).cards() == []
    told = by_id(models({"spec": {"models": ["qwen"]}, "plain": {"models": ["qwen"]}}, {}))
    assert told == {"qwen": {"id": "qwen", "object": "model", "created": 0, "owned_by": "draftlane"}}


def test_adapters_of_one_lane_are_listed_and_served_there() -> None:
    found = models(TWINS, {"spec": [QWEN], "plain": [QWEN, LORA]})
    assert set(by_id(found)) == {"qwen", "qwen-legal"}
    assert found.served_by("spec") == ("qwen",)
    assert found.served_by("plain") == ("qwen", "qwen-legal")
    assert found.resolve("qwen-legal") == "qwen-legal"


def test_only_configured_models_of_a_backend_are_shown() -> None:
    found = models({"spec": {"models": ["qwen"]}, "plain": {}}, {"spec": [QWEN, LORA]})
    assert set(by_id(found)) == {"qwen"}


def test_an_alias_is_listed_resolved_and_renamed_for_the_backend() -> None:
    found = models(TWINS, {"spec": [QWEN], "plain": [QWEN]}, {"qwen": ["gpt-4o", "default"]})
    cards = by_id(found)
    assert set(cards) == {"qwen", "gpt-4o", "default"}
    assert (cards["gpt-4o"]["max_model_len"], cards["gpt-4o"]["root"]) == (40960, "qwen")
    backend = found._backends["spec"]
    for asked in ("gpt-4o", "default", "qwen"):
        assert found.resolve(asked) == "qwen"
    assert found.name_at(backend, "gpt-4o") == "qwen"
    assert found.name_at(backend, "qwen") is None, "the body needs no change"


RENAMED: dict[str, dict[str, object]] = {"spec": {"renames": {"qwen": "qwen-eagle"}}, "plain": {}}


def test_twins_under_two_names_are_one_model() -> None:
    found = models(RENAMED, {"spec": [{**QWEN, "id": "qwen-eagle"}], "plain": [QWEN]}, {"qwen": ["smart"]})
    assert set(by_id(found)) == {"qwen", "smart"}
    assert found.served_by("spec") == found.served_by("plain") == ("qwen",)
    spec, plain = found._backends["spec"], found._backends["plain"]
    assert (found.name_at(spec, "qwen"), found.name_at(plain, "qwen")) == ("qwen-eagle", None)
    assert (found.name_at(spec, "smart"), found.name_at(plain, "smart")) == ("qwen-eagle", "qwen")


def test_a_renamed_model_that_is_configured_keeps_its_engines_card() -> None:
    backends: dict[str, dict[str, object]] = {
        "spec": {"renames": {"qwen": "qwen-eagle"}, "models": ["qwen"]},
        "plain": {"models": ["qwen"]},
    }
    found = models(backends, {"spec": [{**QWEN, "id": "qwen-eagle"}]})
    assert by_id(found)["qwen"]["max_model_len"] == 40960


def test_a_star_stands_for_every_name_that_nobody_serves() -> None:
    found = models(TWINS, {"spec": [QWEN], "plain": [QWEN, LORA]}, {"qwen": ["*"]})
    assert "*" not in by_id(found)
    assert found.resolve("claude-sonnet") == "qwen"
    assert found.resolve("qwen-legal") == "qwen-legal"
    assert found.name_at(found._backends["spec"], "claude-sonnet") == "qwen"
    assert found.name_at(found._backends["plain"], "qwen-legal") is None


def test_with_one_model_the_backend_judges_unknown_names_itself() -> None:
    """Engines load adapters at run time, and llama.cpp answers to any name."""
    found = models(TWINS, {"spec": [QWEN], "plain": [QWEN]})
    assert found.resolve("loaded-a-minute-ago") == "qwen"
    assert found.name_at(found._backends["spec"], "loaded-a-minute-ago") is None
    assert found.resolve(None) == "qwen"


def test_with_two_models_an_unknown_name_is_the_clients_mistake() -> None:
    found = models(TWINS, {"spec": [QWEN], "plain": [{**QWEN, "id": "gemma"}]})
    assert (found.resolve("qwen"), found.resolve("gemma")) == ("qwen", "gemma")
    with pytest.raises(GatewayError, match="'nothing' does not exist") as raised:
        found.resolve("nothing")
    assert (raised.value.status, raised.value.code, raised.value.param) == (404, "model_not_found", "model")


def test_before_anything_is_known_every_name_may_be_right() -> None:
    found = models(TWINS, {})
    assert found.resolve("anything") == ""
    assert found.known == frozenset()


def test_what_is_discovered_later_counts_after_a_refresh() -> None:
    found = models(TWINS, {"plain": [QWEN]})
    found._backends["spec"].learn(Discovered("vllm", ("qwen", "qwen-legal"), True, cards=(QWEN, LORA)))
    found.refresh()
    assert found.known == {"qwen", "qwen-legal"}
