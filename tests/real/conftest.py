"""Two real llama.cpp engines for the whole session: one plain, one that drafts by n-grams."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.llama import LlamaEngine, Tuning, missing, start, weights


@pytest.fixture(scope="session")
def stored_weights() -> Path:
    """The weights' file. Skips only where engine or weights are not installed; all else that fails is a failure."""
    if (lack := missing()) is not None:
        pytest.skip(lack)
    return weights()


@pytest.fixture(scope="session")
def plain_engine(stored_weights: Path) -> Iterator[LlamaEngine]:
    """A running engine that does not speculate."""
    with start(Tuning("plain"), stored_weights) as engine:
        yield engine


@pytest.fixture(scope="session")
def speculative_engine(stored_weights: Path) -> Iterator[LlamaEngine]:
    """A running engine that drafts what followed the last time the same tokens came."""
    with start(Tuning("ngram-mod"), stored_weights) as engine:
        yield engine
