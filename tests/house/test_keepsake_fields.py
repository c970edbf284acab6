"""What is kept over a restart is everything: a field added to a learner must not be forgotten by the keepsake."""

import pytest

from policies.keepsake import SUMS


@pytest.mark.parametrize("kind", SUMS, ids=lambda kind: kind.__name__)
def test_every_sum_of_a_learner_is_kept(kind: type) -> None:
    assert sorted(SUMS[kind]) == sorted(kind.__slots__)  # type: ignore[attr-defined]  # slotted, where not compiled
