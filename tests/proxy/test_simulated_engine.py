"""The simulated engine on a real socket: the wire of the engines it stands for, and its own honesty about itself."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import openai
import pytest

from proxy.discovery import discover
from proxy.engines import ENGINES
from proxy.engines.base import Scrape
from proxy.simulated.character import Character
from proxy.simulated.running import simulated

FAST = Character(step_ms=0, token_us=0, draft_ms=0, prefill_us=0)
SPECULATING = Character(step_ms=0, token_us=0, draft_ms=0, prefill_us=0, depth=4)
CODE = "```python\n" + "".join(f"def field_{n}(value):\n    return value + {n}\n\n" for n in range(12)) + "```"


def chat(prompt: str = "Tell me of the sea.", **more: object) -> dict[str, Any]:
    return {"model": "simulated-model", "messages": [{"role": "user", "content": prompt}], "temperature": 0, **more}


@asynccontextmanager
async def engine(character: Character = FAST) -> AsyncIterator[httpx.AsyncClient]:
    async with simulated(character) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


async def stream(client: httpx.AsyncClient, body: dict[str, Any], path: str = "/v1/chat/completions") -> list[Any]:
    """The JSON of all events, ``[DONE]`` as a string."""
    async with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: ")]
    return [json.loads(line) if line != "[DONE]" else line for line in lines]


def texts(events: list[Any]) -> list[str]:
    found = [event["choices"][0]["delta"].get("content") for event in events if event != "[DONE]" and event["choices"]]
    return [text for text in found if text]


async def scrape(client: httpx.AsyncClient, name: str = "vllm") -> Scrape:
    return ENGINES[name].read_metrics((await client.get("/metrics")).text)


async def until(client: httpx.AsyncClient, seen: Callable[[Scrape], object]) -> Scrape:
    """The first metrics page that fits."""
    while not seen(now := await scrape(client)):  # noqa: ASYNC110 - a server's page can only be asked for again
        await asyncio.sleep(0.002)
    return now


def idle(now: Scrape) -> bool:
    return not now.running and not now.waiting


async def test_it_says_everywhere_that_it_is_simulated() -> None:
    async with engine(SPECULATING) as client:
        answers = [await client.get(path) for path in ("/version", "/v1/models", "/health", "/metrics", "/nowhere")]
        answers.append(await client.post("/v1/chat/completions", json=chat(max_tokens=3)))
        assert [answer.headers.get("x-simulated") for answer in answers] == ["1"] * 6
        assert answers[0].json() == {"version": "0.32.0+simulated", "simulated": True}
        assert answers[1].json()["data"][0]["owned_by"] == "draftlane-simulated"
        assert answers[3].text.startswith("# simulated")
        assert answers[5].json()["system_fingerprint"] == "simulated"


async def test_a_stream_has_one_event_per_step_with_one_to_k_plus_one_tokens() -> None:
    async with engine(SPECULATING) as client:
        events = await stream(client, chat(max_tokens=200, stream_options={"include_usage": True}, ignore_eos=True))
        counted = (await client.post("/tokenize", json={"prompt": "".join(texts(events))})).json()
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-1] == "[DONE]"
    usage, told = events[-2]["usage"], events[-2]["metrics"]["speculative_decoding"]
    assert usage["completion_tokens"] == counted["count"] == 200
    steps = texts(events)
    # The first token comes of the prompt, and the very last step may have no room to draft in.
    assert len(steps) - told["num_spec_steps"] in (1, 2)
    assert usage["completion_tokens"] == len(steps) + told["num_accepted_draft_tokens"]
    assert len(told["acceptance_histogram"]) == SPECULATING.depth + 1
    assert sum(told["acceptance_histogram"]) == told["num_spec_steps"]


@pytest.mark.parametrize(("acceptance", "steps"), [(1.0, 1 + 20), (0.0, 101)])
async def test_acceptance_of_one_and_of_zero_are_exact(acceptance: float, steps: int) -> None:
    character = Character(step_ms=0, token_us=0, draft_ms=0, prefill_us=0, depth=4, acceptance=acceptance)
    async with engine(character) as client:
        events = await stream(client, chat(max_tokens=101, ignore_eos=True))
    assert len(texts(events)) == steps


async def test_both_lanes_write_the_same_words() -> None:
    for body in (chat(max_tokens=80), chat(max_tokens=80, temperature=0.9, seed=7), chat(CODE + "\nRename it.")):
        async with engine(FAST) as plain, engine(SPECULATING) as speculating:
            answers = [await lane.post("/v1/chat/completions", json=body) for lane in (plain, speculating)]
        one, other = (answer.json()["choices"][0]["message"]["content"] for answer in answers)
        assert one == other
        assert one


async def test_sampling_without_a_seed_differs_from_turn_to_turn_and_greedy_does_not() -> None:
    async with engine() as client:
        greedy = [await stream(client, chat(max_tokens=20)) for _ in range(2)]
        sampled = [await stream(client, chat(max_tokens=20, temperature=1)) for _ in range(2)]
    assert texts(greedy[0]) == texts(greedy[1])
    assert texts(sampled[0]) != texts(sampled[1])


async def test_usage_comes_only_where_it_was_asked_for() -> None:
    async with engine(SPECULATING) as client:
        silent = await stream(client, chat(max_tokens=9))
        always = await stream(
            client, chat(max_tokens=9, stream_options={"include_usage": True, "continuous_usage_stats": True})
        )
    assert not any("usage" in event for event in silent if event != "[DONE]")
    assert silent[-2]["choices"][0]["finish_reason"] == "length"
    counts = [event["usage"]["completion_tokens"] for event in always if event != "[DONE]"]
    assert counts == sorted(counts)
    assert counts[-1] == 9


async def test_counters_agree_with_the_answers_and_start_anew_on_demand() -> None:
    async with engine(SPECULATING) as client:
        told = []
        for prompt in ("One.", "Two.", CODE + " Fix it."):
            answer = await client.post("/v1/chat/completions", json=chat(prompt, max_tokens=60))
            told.append(answer.json()["metrics"]["speculative_decoding"])
        after = await scrape(client)
        await client.post("/simulated", json={"reset": True})
        fresh = await scrape(client)
    assert after.drafts == sum(one["num_spec_steps"] for one in told)
    assert after.draft_tokens == sum(one["num_draft_tokens"] for one in told)
    assert (
        after.accepted_tokens
        == sum(one["num_accepted_draft_tokens"] for one in told)
        == sum(after.accepted_per_position)
    )
    assert list(after.accepted_per_position) == sorted(after.accepted_per_position, reverse=True)
    assert (fresh.drafts, fresh.generated_tokens, fresh.accepted_per_position) == (0, 0, (0.0,) * 4)


async def test_a_plain_one_has_no_speculation_counters_at_all() -> None:
    async with engine() as client:
        answer = (await client.post("/v1/chat/completions", json=chat(max_tokens=5))).json()
        assert (await scrape(client)).drafts is None
    assert answer["metrics"]["speculative_decoding"] is None


async def test_copied_code_is_accepted_more_often_than_prose_and_heat_costs_acceptance() -> None:
    cold, hot = SPECULATING.alpha("text", 0), SPECULATING.alpha("text", 1)
    assert SPECULATING.alpha("code-edit", 0) > cold > hot
    async with engine(SPECULATING) as client:
        rates = []
        for prompt in (CODE + "\nRename field_3.", "Write a long letter."):
            answer = await client.post("/v1/chat/completions", json=chat(prompt, max_tokens=300, ignore_eos=True))
            rates.append(answer.json()["metrics"]["speculative_decoding"]["draft_acceptance_rate"])
    assert rates[0] > rates[1]


@pytest.mark.parametrize("refused", [{"min_p": 0.1}, {"logit_bias": {"100": 5}}])
async def test_speculating_it_refuses_what_vllm_refuses_and_its_plain_twin_does_not(refused: dict[str, Any]) -> None:
    async with engine(SPECULATING) as speculating, engine(FAST) as plain:
        answer = await speculating.post("/v1/chat/completions", json=chat(max_tokens=4, stream=True, **refused))
        taken = await plain.post("/v1/chat/completions", json=chat(max_tokens=4, **refused))
    assert (answer.status_code, taken.status_code) == (400, 200)
    assert answer.json()["error"] == {
        "message": "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    assert ENGINES["vllm"].refused_feature(400, answer.content, tuple(refused)) == next(iter(refused))


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/chat/completions", chat(model="other"), 404, "NotFoundError"),
        ("/v1/chat/completions", {"messages": "no"}, 400, "Bad Request"),
        ("/v1/chat/completions", {"messages": []}, 400, "BadRequestError"),
        ("/v1/chat/completions", chat(max_tokens=0), 400, "BadRequestError"),
        ("/v1/chat/completions", chat(max_tokens=10**6), 400, "BadRequestError"),
        ("/v1/chat/completions", chat(temperature="hot"), 400, "Bad Request"),
        ("/v1/chat/completions", chat(temperature=-3), 400, "BadRequestError"),
        ("/v1/chat/completions", chat(stream_options={"include_usage": True}), 400, "BadRequestError"),
        ("/v1/completions", {"prompt": "word " * 40_000}, 400, "BadRequestError"),
        ("/v1/completions", {}, 400, "Bad Request"),
        ("/v1/messages", {"max_tokens": 4}, 400, "Bad Request"),
        ("/v1/responses", {}, 400, "Bad Request"),
        ("/v1/completions", [1], 400, "Bad Request"),
    ],
)
async def test_errors_have_the_shape_of_vllms(path: str, body: object, status: int, kind: str) -> None:
    async with engine() as client:
        answer = await client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (status, kind, status)
    assert error["message"]


async def test_unknown_paths_methods_and_broken_json() -> None:
    async with engine() as client:
        assert (await client.post("/v1/nothing", json={})).json() == {"detail": "Not Found"}
        assert (await client.get("/v1/chat/completions")).status_code == 405
        assert (await client.request("DELETE", "/v1/models")).status_code == 405
        assert (await client.post("/v1/chat/completions", content=b"{")).status_code == 400


async def test_a_key_is_asked_for_under_v1_only() -> None:
    async with engine(Character(step_ms=0, key="k")) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/v1/models", headers={"authorization": "Bearer k"})).status_code == 200


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_frees_its_place(streaming: bool) -> None:
    async with engine(Character(step_ms=5)) as client:
        body = chat(max_tokens=20_000, ignore_eos=True, stream=streaming)
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        await until(client, lambda now: now.running)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        after = await until(client, idle)
        page = (await client.get("/metrics")).text
    assert after.generated_tokens is not None
    assert after.generated_tokens < 20_000
    assert 'finished_reason="abort",engine="0",model_name="simulated-model"} 1.0' in page


async def test_more_requests_than_it_takes_at_once_wait() -> None:
    async with engine(Character(step_ms=2, max_requests=1)) as client:
        bodies = [chat(f"{n}", max_tokens=50, ignore_eos=True) for n in range(3)]
        asking = [asyncio.create_task(client.post("/v1/chat/completions", json=body)) for body in bodies]
        crowded = await until(client, lambda now: now.waiting == 2)
        answers = await asyncio.gather(*asking)
        await until(client, idle)
    assert crowded.running == 1
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [50, 50, 50]


async def test_a_prompt_seen_before_is_read_from_its_cache() -> None:
    async with engine() as client:
        history = [{"role": "user", "content": "a long story " * 200}]
        for turn in ("first", "second"):
            history.append({"role": "user", "content": turn})
            body = {"messages": history, "max_tokens": 2}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
        usage = answer["usage"]
    assert 0.9 * usage["prompt_tokens"] < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


async def test_completions_take_several_prompts_ids_echo_and_stop() -> None:
    async with engine() as client:
        ids = (await client.post("/tokenize", json={"prompt": "One two"})).json()["tokens"]
        many = (await client.post("/v1/completions", json={"prompt": ["a", ids], "n": 2, "max_tokens": 3})).json()
        echoed = (await client.post("/v1/completions", json={"prompt": ids, "echo": True, "max_tokens": 3})).json()
        whole = (await client.post("/v1/completions", json={"prompt": "x", "temperature": 0, "max_tokens": 50})).json()
        words = whole["choices"][0]["text"].split(" ")
        stopped = (
            await client.post(
                "/v1/completions", json={"prompt": "x", "temperature": 0, "max_tokens": 50, "stop": words[3]}
            )
        ).json()["choices"][0]
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2, 3]
    assert many["usage"]["completion_tokens"] == 12
    assert many["metrics"] is None
    assert echoed["choices"][0]["text"].startswith("One two")
    assert stopped["finish_reason"] == "stop"
    assert words[3] not in stopped["text"]


async def test_json_is_answered_where_json_was_asked_for() -> None:
    async with engine() as client:
        answer = await client.post("/v1/chat/completions", json=chat(response_format={"type": "json_object"}))
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert json.loads(choice["message"]["content"])["items"]


async def test_tokenizing_and_back() -> None:
    async with engine() as client:
        found = (await client.post("/tokenize", json={"prompt": "Grüße, 世界! x_1"})).json()
        back = (await client.post("/detokenize", json={"tokens": found["tokens"]})).json()
        odd = (await client.post("/detokenize", json={"tokens": [7, 2**90, "x", -1]})).json()
    assert back == {"prompt": "Grüße, 世界! x_1"}
    assert odd == {"prompt": "\ufffd" * 3}


async def test_embeddings_are_the_same_for_the_same_text() -> None:
    async with engine() as client:
        data = (await client.post("/v1/embeddings", json={"input": ["a", "b", "a"]})).json()["data"]
    assert data[0]["embedding"] == data[2]["embedding"] != data[1]["embedding"]


async def test_discovery_recognises_what_it_stands_for() -> None:
    ngram = Character(dialect="vllm", depth=3, method="ngram", max_requests=8, context_tokens=4096)
    slots = Character(dialect="llamacpp", depth=3, max_requests=2)
    async with simulated(ngram) as vllm, simulated(slots) as llamacpp, httpx.AsyncClient() as client:
        one, other = await discover(client, vllm), await discover(client, llamacpp)
    assert (one.engine, one.speculative, one.depth, one.method, one.drafts_always) == ("vllm", True, 3, "ngram", False)
    assert (one.max_context_tokens, one.max_requests, one.version) == (4096, 8, "0.32.0+simulated")
    assert (other.engine, other.speculative, other.max_requests, other.models) == (
        "llamacpp",
        True,
        2,
        ("simulated-model",),
    )


async def test_as_llamacpp_every_token_is_an_event_and_timings_ride_the_end() -> None:
    character = Character(dialect="llamacpp", step_ms=0, token_us=0, draft_ms=0, prefill_us=0, depth=4, acceptance=1)
    async with engine(character) as client:
        events = await stream(client, chat(max_tokens=21, ignore_eos=True, min_p=0.1, model="ignored"))
        answer = (await client.post("/v1/chat/completions", json=chat(max_tokens=0))).json()
        missing = await client.post("/v1/chat/completions", json={})
        after = await scrape(client, "llamacpp")
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert len(texts(events)) == 21
    assert events[-2]["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}
    assert (events[-2]["timings"]["draft_n"], events[-2]["timings"]["draft_n_accepted"]) == (16, 16)
    assert answer["usage"]["completion_tokens"] == 1
    assert "draft_n" not in answer["timings"]
    assert missing.json()["error"] == {
        "message": "'messages' is required",
        "type": "invalid_request_error",
        "code": 400,
    }
    assert (after.drafts, after.accepted_tokens, after.generated_tokens) == (4.0, 16.0, 22.0)


async def test_the_openai_sdk_is_content_with_it() -> None:
    async with simulated(SPECULATING) as url:
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none")
        models = [model.id async for model in await client.models.list()]
        asked = await client.chat.completions.create(
            model=models[0], messages=[{"role": "user", "content": "Hi"}], max_tokens=8, stream=True
        )
        parts = [chunk.choices[0].delta.content or "" async for chunk in asked]
        response = await client.responses.create(model=models[0], input="Hi", max_output_tokens=8)
        kinds = [event.type async for event in await client.responses.create(model=models[0], input="Hi", stream=True)]
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hi"}])
        await client.close()
    assert "".join(parts)
    assert response.output_text
    assert response.incomplete_details is not None
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


async def test_the_anthropic_sdk_is_content_with_it() -> None:
    async with simulated(SPECULATING) as url:
        client = anthropic.AsyncAnthropic(base_url=url, api_key="none")
        question: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Hi"}]
        counted = await client.messages.count_tokens(model="simulated-model", messages=question)
        async with client.messages.stream(model="simulated-model", max_tokens=16, messages=question) as asked:
            text = "".join([part async for part in asked.text_stream])
            final = await asked.get_final_message()
        await client.close()
    assert counted.input_tokens == final.usage.input_tokens
    assert final.stop_reason == "max_tokens"
    assert text


async def test_it_can_be_stalled_taken_down_and_changed_while_it_runs() -> None:
    async with engine(SPECULATING) as client:
        await client.post("/simulated", json={"stalled": True})
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=chat(max_tokens=5)))
        await until(client, lambda now: now.waiting)
        assert not asking.done()
        await client.post("/simulated", json={"stalled": False, "acceptance": 0.0})
        assert (await asking).status_code == 200
        told = (await client.post("/v1/chat/completions", json=chat(max_tokens=50))).json()["metrics"][
            "speculative_decoding"
        ]
        assert told["num_accepted_draft_tokens"] == 0
        await client.post("/simulated", json={"down": True})
        assert (await client.get("/health")).status_code == 503
        await client.post("/simulated", json={"down": False})
        assert (await client.get("/health")).status_code == 200
        assert (await client.post("/simulated", json={"acceptance": 3})).status_code == 400


def test_the_command_says_where_it_listens_and_that_it_is_simulated() -> None:
    command = [sys.executable, "-m", "proxy", "engine", "--port", "0", "--speculative", "3", "--step-ms", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        banner = process.stderr.readline()
        url = banner.split()[-1]
        answer = httpx.post(f"{url}/v1/completions", json={"prompt": "Hi", "max_tokens": 4}, timeout=30)
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()
    assert banner.startswith("SIMULATED engine")
    assert "3 draft tokens per step" in banner
    assert answer.json()["metrics"]["speculative_decoding"]["num_spec_tokens"] == 3


@pytest.mark.parametrize("wrong", [["--engine", "tgi"], ["--acceptance", "2"], ["--output-scale", "0"]])
def test_the_command_refuses_what_cannot_be_simulated_as_the_operators_mistake(wrong: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "proxy", "engine", *wrong], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "Invalid value" in ended.stderr
