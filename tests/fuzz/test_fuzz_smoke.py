"""A short fixed run of the fuzzer; the long ones are ``python -m tests.fuzz.run``."""

from tests.fuzz.run import attack


async def test_three_hundred_inputs_find_nothing() -> None:
    tally = await attack(1, lambda requests: requests < 300)
    assert tally.requests == 300
    assert tally.answers > 150
