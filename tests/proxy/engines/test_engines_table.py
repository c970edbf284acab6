"""The table of engines is complete and its entries are honest about what they are."""

from proxy.engines import ENGINES


def test_every_engine_is_registered_under_its_own_name() -> None:
    assert {name: engine.name for name, engine in ENGINES.items()} == {name: name for name in ENGINES}
    assert set(ENGINES) == {"vllm", "sglang", "llamacpp", "trtllm", "tgi", "unknown"}


def test_prefixes_and_owners_tell_engines_apart() -> None:
    prefixes = [engine.prefix for engine in ENGINES.values() if engine.prefix]
    owners = [owner for engine in ENGINES.values() for owner in engine.owners]
    assert len(prefixes) == len(set(prefixes)) == 5
    assert len(owners) == len(set(owners))


def test_refused_features_are_sorted_names_without_repetition() -> None:
    for engine in ENGINES.values():
        assert list(engine.refuses) == sorted(set(engine.refuses)), engine.name


def test_nothing_is_asked_of_an_unknown_server_that_it_might_refuse() -> None:
    assert not ENGINES["unknown"].takes_usage
    assert ENGINES["unknown"].asks == ()
