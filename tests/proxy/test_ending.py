"""How requests end, as metrics, log and dashboard are told: once each, with what is known and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from proxy.outcome import BACKEND_ERROR, CANCELLED, CLIENT_ERROR, OK, REJECTED, Outcome
from tests.live.lanes import MODEL, SPECULATIVE, Live, both_lanes, configured, digest, gateway
from tests.scripted.backend import Script, ScriptedBackend, Visit
from tests.scripted.client import connected, post
from tests.scripted.clock import until
from tests.scripted.scripts import CHUNKED, EVENTS, SSE, answer, chunk, head, say, then_close, then_hold

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live() -> AsyncIterator[Live]:
    """Two simulated lanes."""
    async with both_lanes(log={"level": "error"}) as found:
        yield found


async def test_a_stream_that_ended_well_tells_everything(live: Live) -> None:
    response = await live.chat(
        stream=True, max_tokens=12, headers={"x-draftlane-lane": "speculative", "x-draftlane-app": "letters"}
    )
    told = live.outcomes[-1]
    assert (told.id, told.app, told.surface) == (response.headers["x-request-id"], "letters", "chat")
    assert (told.model, told.model_known, told.lane, told.backend) == (MODEL, True, "speculative", "speculative")
    assert (told.status, told.outcome, told.fault, told.retries, told.requeues) == (200, OK, None, 0, 0)
    assert (told.completion_tokens, told.predicted_tokens, told.stream) == (12, 12, True)
    assert told.prompt_tokens is not None
    assert told.ttft_seconds is not None
    assert told.tpot_seconds is not None
    assert told.own_seconds is not None
    assert 0 < told.own_seconds < told.ttft_seconds <= told.latency_seconds
    assert told.tokens_per_step is not None
    assert told.tokens_per_step >= 1
    assert told.draft_tokens is not None
    assert told.accepted_tokens is not None
    assert told.draft_tokens >= told.accepted_tokens


async def test_an_engine_that_tells_no_acceptance_shows_its_steps_by_its_events() -> None:
    """vLLM's usual case: figures per request need a flag, but a stream has an event per step."""
    quiet = replace(SPECULATIVE, request_metrics=False, acceptance=1.0)
    async with both_lanes(speculative=quiet, log={"level": "error"}) as live:
        for _ in range(3):
            await live.chat(stream=True, max_tokens=41, ignore_eos=True, headers={"x-draftlane-lane": "speculative"})
        told = live.outcomes[-1]
        assert (told.draft_tokens, told.accepted_tokens) == (None, None)
        assert told.tokens_per_step == pytest.approx(4.1), "41 tokens: the prefill's, then ten steps of four"
        learnt = {one["name"]: one for one in (await live.state())["backends"]}["speculative"]
        assert learnt["tokens_per_step"] > 2, "it was 1 + 3 × the first guess before"
        assert learnt["acceptance"]["tokens_per_step"] == pytest.approx(4.0, rel=0.05)


async def test_a_whole_answer_has_no_first_token_and_no_time_per_token(live: Live) -> None:
    await live.chat(headers={"x-draftlane-lane": "plain"})
    told = live.outcomes[-1]
    assert (told.outcome, told.ttft_seconds, told.tpot_seconds, told.completion_tokens) == (OK, None, None, 8)
    assert (told.draft_tokens, told.accepted_tokens, told.tokens_per_step) == (None, None, None)


async def test_the_clients_own_mistake_is_nobody_elses(live: Live) -> None:
    await live.chat(temperature=-1)
    told = live.outcomes[-1]
    assert (told.status, told.outcome, told.fault, told.completion_tokens) == (400, CLIENT_ERROR, None, None)


async def test_a_body_that_is_no_request_is_rejected_without_a_lane(live: Live) -> None:
    await live.public.post("/v1/chat/completions", content=b"{")
    told = live.outcomes[-1]
    assert (told.status, told.outcome, told.fault) == (400, REJECTED, "bad_request")
    assert (told.lane, told.backend, told.workload, told.model, told.ratio) == ("", "", "", "", None)


async def test_one_turned_away_at_the_door_is_counted_without_the_name_it_gave_itself() -> None:
    async with both_lanes(keys={"sha256": {"team-a": digest("sk-a")}}) as live:
        response = await live.chat(headers={"x-draftlane-app": "made-up", "authorization": "Bearer wrong"})
        (told,) = live.outcomes
        assert (told.id, told.app) == (response.headers["x-request-id"], "unnamed")
        assert (told.status, told.outcome, told.fault) == (401, REJECTED, "unauthorized")


async def scripted(script: Script, *, stream: bool, leave: bool = False) -> Outcome:
    """The outcome of one request to a backend that follows a script."""
    async with ScriptedBackend(_for_requests(script)).listening() as backend:
        one = {"name": "one", "url": backend.url, "lane": "plain", "models": ["m"], "engine": "vllm"}
        async with gateway(configured({"backends": [one], "log": {"level": "error"}})) as live:
            body = b'{"model":"m","stream":%b,"messages":[]}' % (b"true" if stream else b"false")
            async with connected(live.ports.public) as client:
                await client.send(post(body))
                if leave:
                    await until(lambda: [one for one in backend.requests if one.method == "POST"])
                    client.leave()
                else:
                    await client.answer()
            await until(lambda: live.outcomes)
            (told,) = live.outcomes
            return told


def _for_requests(script: Script) -> Script:
    """The watch looks at backends, too; it gets an empty answer."""

    async def play(visit: Visit) -> None:
        await (script if visit.request.method == "POST" else answer(b"{}"))(visit)

    return play


async def test_a_backend_that_breaks_off_is_its_own_fault_though_the_client_saw_200() -> None:
    told = await scripted(then_close(head(SSE + CHUNKED), chunk(EVENTS[0])), stream=True)
    assert (told.status, told.outcome, told.fault) == (200, BACKEND_ERROR, "truncated")
    assert told.ttft_seconds is not None
    assert told.tpot_seconds is None


async def test_a_backend_that_fails_before_a_byte_is_a_502_of_ours() -> None:
    told = await scripted(then_close(), stream=False)
    assert (told.status, told.outcome, told.fault) == (502, BACKEND_ERROR, "closed")


async def test_a_500_of_the_only_backend_is_passed_on_and_counted() -> None:
    told = await scripted(answer(b'{"error":{"message":"oh"}}', b"500 Internal Server Error"), stream=False)
    assert (told.status, told.outcome, told.fault) == (500, BACKEND_ERROR, "status")


async def test_a_client_that_leaves_before_an_answer_got_no_status() -> None:
    told = await scripted(then_hold(), stream=False, leave=True)
    assert (told.status, told.outcome, told.fault) == (0, CANCELLED, None)


async def test_an_answer_that_makes_no_sense_to_the_meter_is_still_an_answer() -> None:
    told = await scripted(say(head(b"content-type: application/json\r\ncontent-length: 5\r\n"), b"hello"), stream=False)
    assert (told.status, told.outcome, told.completion_tokens) == (200, OK, None)


async def test_every_request_ends_once(live: Live) -> None:
    before = len(live.outcomes)
    await asyncio.gather(*(live.chat(stream=number % 2 == 0) for number in range(10)))
    told = live.outcomes[before:]
    assert (len(told), len({one.id for one in told})) == (10, 10)
