"""The server in closed form against the same server stepped one by one, and the rules it must keep."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.simulation_server import Engine, Flight, Server
from policies.simulation_workload import Acceptance, Drafter, Job

DRAFTER = Drafter("d", 3, {"chat": Acceptance(2.2, 1.4, 0.25)})
PLAIN = Engine("plain", 0.006, 3e-5, 6e-8, chunk_tokens=512)
FAST = Engine("fast", 0.006, 3e-5, 6e-8, DRAFTER, 0.0006, chunk_tokens=512)


def job(number: int, at: float, input_tokens: int, output_tokens: int) -> Job:
    return Job(at, f"r{number}", "app", "chat", input_tokens, output_tokens, input_tokens * 4, 0.0, 0.0, 1.0, 0.0)


def drive(engine: Engine, flights: list[Flight]) -> list[Flight]:
    """Feed arrivals and step borders in the order of time."""
    server, waiting = Server(engine), list(flights)
    ended: list[Flight] = []
    while len(ended) < len(flights):
        if waiting and waiting[0].job.at <= server.due:
            server.submit(waiting[0], waiting.pop(0).job.at)
        else:
            ended += server.border()[1]
    return ended


def stepped(engine: Engine, flights: list[Flight]) -> dict[str, tuple[float, float]]:
    """The same server as its engine would run it: one step after the other. First token and end per request."""
    # long: one engine step, told in the order in which an engine does it
    coming = list(flights)
    waiting: list[Flight] = []
    prefill: list[Flight] = []
    decode: list[list[float]] = []
    names: list[str] = []
    left = {flight.job.id: float(flight.job.input_tokens) for flight in flights}
    times: dict[str, tuple[float, float]] = {}
    by_id = {flight.job.id: flight for flight in flights}
    now = 0.0
    while coming or waiting or prefill or names:
        if not (waiting or prefill or names):
            now = max(now, coming[0].job.at)
        while coming and coming[0].job.at <= now + 1e-12:
            waiting.append(coming.pop(0))
        held = sum(f.job.input_tokens + f.job.output_tokens for f in [*prefill, *(by_id[n] for n in names)])
        while waiting:
            tokens = waiting[0].job.input_tokens + waiting[0].job.output_tokens
            running = len(prefill) + len(names)
            if running and (running >= engine.max_requests or held + tokens > engine.cache_tokens):
                break
            held += tokens
            prefill.append(waiting.pop(0))
        verify = sum(by_id[n].verify for n in names)
        cached = sum(row[1] for row in decode)
        room = max(int(engine.chunk_tokens - verify), 64)
        chunk = min(room, sum(left[f.job.id] for f in prefill))
        seconds = engine.fixed_seconds + engine.token_seconds * (verify + chunk) + engine.cache_seconds * cached
        now += seconds + (engine.draft_seconds * engine.depth if names else 0.0)
        for row, name in zip(decode, names, strict=True):
            row[0] -= 1
            row[1] += by_id[name].growth
        joined = []
        while prefill and chunk >= left[prefill[0].job.id] > -1:
            flight = prefill.pop(0)
            chunk -= left[flight.job.id]
            times[flight.job.id] = (now, inf)
            joined.append(flight)
        if prefill:
            left[prefill[0].job.id] -= chunk
        for flight in joined:
            names.append(flight.job.id)
            decode.append([flight.steps, flight.job.input_tokens + 1.0])
        for name, row in zip(list(names), list(decode), strict=True):
            if row[0] <= 0:
                times[name] = (times[name][0], now)
                names.remove(name)
                decode.remove(row)
    return times


arrivals = st.lists(
    st.tuples(st.floats(0.0001, 0.3), st.integers(1, 3000), st.integers(1, 200)), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(arrivals, st.sampled_from([PLAIN, FAST]), st.sampled_from([2, 256]), st.sampled_from([6000, 400_000]))
def test_closed_form_equals_step_by_step(
    asked: list[tuple[float, int, int]], engine: Engine, most: int, cache: int
) -> None:
    engine = engine._replace(max_requests=most, cache_tokens=cache)
    at, flights = 0.0, []
    for number, (gap, input_tokens, output_tokens) in enumerate(asked):
        at += gap
        flights.append(Flight(job(number, at, input_tokens, output_tokens), engine.drafter))
    expected = stepped(engine, flights)
    for flight in drive(engine, flights):
        first, end = expected[flight.job.id]
        assert flight.first_at == pytest.approx(first, abs=1e-6)
        assert flight.ended_at == pytest.approx(end, abs=1e-6)


def test_a_lone_request_takes_prefill_steps_then_decode_steps() -> None:
    flight = Flight(job(0, 1.0, 1000, 11), None)
    drive(PLAIN, [flight])
    assert flight.first_at == pytest.approx(1.0 + 2 * 0.006 + 1000 * 3e-5)
    decode = sum(0.006 + 3e-5 + 6e-8 * (1001 + step) for step in range(10))
    assert flight.ended_at == pytest.approx(flight.first_at + decode)


def test_drafts_shorten_a_lone_answer_and_are_counted() -> None:
    slow, fast = Flight(job(0, 0.0, 100, 200), None), Flight(job(0, 0.0, 100, 200), DRAFTER)
    drive(PLAIN, [slow])
    drive(FAST, [fast])
    assert fast.ended_at < 0.65 * slow.ended_at
    assert fast.accepted == 199 - fast.steps
    assert fast.drafted == 3 * fast.steps


def test_a_hung_server_says_nothing_and_finishes_that_much_later() -> None:
    calm, hung = Flight(job(0, 0.0, 100, 100), None), Flight(job(0, 0.0, 100, 100), None)
    drive(PLAIN, [calm])
    server = Server(PLAIN)
    server.submit(hung, 0.0)
    server.border()
    server.hang(0.1, 60.0)
    heard_at, _ = server.heard(30.0)
    assert heard_at <= 0.1
    while server.due < inf:
        server.border()
    assert hung.ended_at == pytest.approx(calm.ended_at + 60.0)


def test_a_request_sent_to_an_idle_hung_server_waits_for_it() -> None:
    server, flight = Server(PLAIN), Flight(job(0, 1.0, 100, 1), None)
    server.hang(0.0, 60.0)
    server.submit(flight, 1.0)
    server.border()
    assert flight.first_at == pytest.approx(60.0 + 0.006 + 100 * 3e-5)


def test_a_slow_server_takes_its_factor_longer_from_the_next_border() -> None:
    calm, slow = Flight(job(0, 0.0, 100, 200), None), Flight(job(0, 0.0, 100, 200), None)
    drive(PLAIN, [calm])
    server = Server(PLAIN)
    server.slow(0.0, 2.0)
    server.submit(slow, 0.0)
    while server.due < inf:
        server.border()
    assert slow.ended_at == pytest.approx(2.0 * calm.ended_at)


def test_a_withdrawn_request_leaves_its_place_to_others() -> None:
    server = Server(PLAIN._replace(max_requests=1))
    first, gone, last = (Flight(job(n, 0.0, 100, 50), None) for n in range(3))
    for flight in (first, gone, last):
        server.submit(flight, 0.0)
    server.withdraw(gone)
    ended = []
    while server.due < inf:
        ended += server.border()[1]
    assert ended == [first, last]
    assert server.in_flight == 0
