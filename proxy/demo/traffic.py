"""What the three applications of the demonstration ask for, and the asking, through the OpenAI SDK.

The prompts are the built-in ones of ``draftlane bench``, brought into the shape a base model continues: it
repeats a file that stands in the prompt, goes on with a letter, or says a word on a long text.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from openai import AsyncOpenAI, AsyncStream, OpenAIError

from proxy.proof.prompts import built_in

CODE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
EACH = 10
"""Requests per application."""


class Request(NamedTuple):
    """One request of an application."""

    app: str
    prompt: str
    max_tokens: int
    temperature: float
    stream: bool


class Answered(NamedTuple):
    """How it went, as the client saw it."""

    request: Request
    lane: str | None
    """From the response headers."""
    error: str | None


def requests() -> list[list[Request]]:
    """Per application its requests, in order."""
    return [
        [Request("coding-assistant", text, 112, 0.0, n % 4 != 3) for n, text in enumerate(_edits())],
        [Request("writing-assistant", text, 96, 0.9, n % 4 != 3) for n, text in enumerate(_letters())],
        [Request("summariser", text, 8, 0.3, n % 2 == 0) for n, text in enumerate(_long_texts())],
    ]


def _edits() -> list[str]:
    found = [CODE.search(prompt.text) for prompt in built_in(["code-edit"])]
    files = [match for match in found if match is not None][:EACH]
    return [_edit(f"part{n}", match.group(1), match.group(2)) for n, match in enumerate(files)]


def _edit(name: str, language: str, code: str) -> str:
    """Zero-shot copying: what a base model takes up, and an n-gram drafter can follow."""
    return f"The file {name}:\n```{language}\n{code}```\n\nThe file {name} with one name changed:\n```{language}\n"


def _letters() -> list[str]:
    return [f"{prompt.text}\n\nHere it is.\n\n" for prompt in built_in(["writing"])[:EACH]]


def _long_texts() -> list[str]:
    return [f"{prompt.text}\n\nIn one word, the subject is" for prompt in built_in(["summary"])[:EACH]]


async def send(base_url: str, model: str, done: Callable[[Answered], None]) -> list[Answered]:
    """All applications at once, each one request after the other; ``done`` hears of every answer."""
    client = AsyncOpenAI(base_url=base_url, api_key="demo", max_retries=0, timeout=300)
    async with client:
        answered = await asyncio.gather(*(_application(client, model, asked, done) for asked in requests()))
    return [one for some in answered for one in some]


async def _application(
    client: AsyncOpenAI, model: str, asked: Sequence[Request], done: Callable[[Answered], None]
) -> list[Answered]:
    answers = []
    for request in asked:
        answer = await _one(client, model, request)
        done(answer)
        answers.append(answer)
    return answers


async def _one(client: AsyncOpenAI, model: str, request: Request) -> Answered:
    try:
        lane = await _ask(client, model, request)
    except OpenAIError as error:
        return Answered(request, None, f"{type(error).__name__}: {error}")
    return Answered(request, lane, None)


async def _ask(client: AsyncOpenAI, model: str, request: Request) -> str | None:
    """The lane that answered; the answer itself is read to its end and let go."""
    raw = await client.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": request.prompt}],
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        stream=request.stream,
        extra_headers={"x-draftlane-app": request.app},
    )
    answer = raw.parse()
    if isinstance(answer, AsyncStream):
        async for _ in answer:
            pass
    return raw.headers.get("x-draftlane-lane")
