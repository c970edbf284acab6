"""Asks a backend what it is: engine, models, context, whether it speculates.

Two waves of GETs share one deadline: what every engine has, then what the recognised engine offers.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import httpx

from proxy.engines import ENGINES
from proxy.engines.base import Discovered, Engine, Told
from proxy.engines.habits import field, text, whole

_MODELS, _METRICS, _VERSION = "/v1/models", "/metrics", "/version"
_MOST_BYTES = 8 * 1024 * 1024
"""A /server_info is 33 kB, a metrics page of a large fleet some hundred; more is not an answer to these questions."""
_DRAFTS_ON_MATCH = ("ngram", "suffix")


class BackendUnreachableError(Exception):
    """Nothing answered at a backend's address. ``url`` is the operator's, ``cause`` a sentence."""

    def __init__(self, url: str, cause: str) -> None:
        """Say where and why."""
        super().__init__(f"{url}: {cause}")
        self.url = url
        self.cause = cause


class Answer(NamedTuple):
    """What one GET brought. ``status`` is None when nothing came, ``fault`` says why."""

    status: int | None
    body: str = ""
    fault: str = ""

    def json(self) -> object:
        """The body's JSON; None when it is not a success with JSON in it."""
        if self.status != 200:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def root(url: str) -> str:
    """The address without a trailing slash or ``/v1``, under which all paths of an engine are."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


async def get(client: httpx.AsyncClient, url: str, headers: Mapping[str, str], limit_seconds: float) -> Answer:
    """One GET of at most 8 MiB. Raises nothing but cancellation: what went wrong is in the answer."""
    # Engines drop idle connections after 5 s, which is about when the next look comes: open a fresh one.
    asked = {**headers, "connection": "close"}
    try:
        async with asyncio.timeout(limit_seconds), client.stream("GET", url, headers=asked) as answer:
            return Answer(answer.status_code, await _body(answer))
    except TimeoutError:
        return Answer(None, fault=f"no answer within {limit_seconds:g} s")
    except httpx.TimeoutException as error:
        return Answer(None, fault=f"no answer in time ({type(error).__name__})")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Answer(None, fault=str(error) or type(error).__name__)


async def _body(answer: httpx.Response) -> str:
    got = bytearray()
    async for piece in answer.aiter_bytes():
        got += piece
        if len(got) > _MOST_BYTES:
            raise ValueError("the answer does not end")
    return got.decode("utf-8", "replace")


async def discover(
    client: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str] | None = None,
    limit_seconds: float = 10.0,
) -> Discovered:
    """Ask the backend at ``url`` (with or without ``/v1``) what it is, within ``limit_seconds`` in all.

    Odd or missing answers leave fields unknown. Raises ``BackendUnreachableError`` when not one question was answered.
    """
    base, sent = root(url), headers or {}
    until = asyncio.get_running_loop().time() + limit_seconds
    first = await _ask(client, base, sent, (_MODELS, _METRICS, _VERSION, "/props"), until)
    if all(answer.status is None for answer in first.values()):
        raise BackendUnreachableError(url, first[_MODELS].fault)
    engine = _recognise(first)
    missing = dict.fromkeys(path for path in (*engine.asks, engine.metrics_path) if path not in first)
    answers = first | await _ask(client, base, sent, missing, until)
    return _understand(engine, answers)


async def _ask(
    client: httpx.AsyncClient, base: str, headers: Mapping[str, str], paths: Iterable[str], until: float
) -> dict[str, Answer]:
    left = max(until - asyncio.get_running_loop().time(), 0.001)
    wanted = list(paths)
    answers = await asyncio.gather(*(get(client, base + path, headers, left) for path in wanted))
    return dict(zip(wanted, answers, strict=True))


def _recognise(answers: Mapping[str, Answer]) -> Engine:
    page, owners = _page(answers, _METRICS), {text(card.get("owned_by")) for card in _cards(answers)}
    for engine in ENGINES.values():
        if page and engine.prefix and ("\n" + page).find("\n" + engine.prefix) >= 0:
            return engine
    for engine in ENGINES.values():
        if owners.intersection(engine.owners):
            return engine
    # A llama.cpp started without --metrics and with a proxy's model list before it.
    slots = whole(field(answers["/props"].json(), "total_slots"))
    return ENGINES["llamacpp" if slots else "unknown"]


def _understand(engine: Engine, answers: Mapping[str, Answer]) -> Discovered:
    page, cards = _page(answers, engine.metrics_path), _cards(answers)
    readable = bool(page and engine.prefix and ("\n" + page).find("\n" + engine.prefix) >= 0)
    pages = {path: found for path, answer in answers.items() if (found := answer.json()) is not None}
    told = engine.tell(pages, engine.read_metrics(page) if page and readable else None)
    contexts = [length for card in cards if (length := _context(card)) is not None]
    return Discovered(
        engine=engine.name,
        models=_models(cards),
        speculative=told.speculative,
        depth=told.depth if told.speculative else None,
        max_context_tokens=max(contexts, default=told.max_context_tokens),
        max_requests=told.max_requests,
        metrics=readable,
        version=told.version or text(field(answers[_VERSION].json(), "version")),
        cards=cards,
        method=told.method,
        drafts_always=_drafts_always(told),
    )


def _page(answers: Mapping[str, Answer], path: str) -> str | None:
    answer = answers.get(path)
    return answer.body if answer is not None and answer.status == 200 else None


def _cards(answers: Mapping[str, Answer]) -> tuple[dict[str, object], ...]:
    data = field(answers[_MODELS].json(), "data")
    cards = data if isinstance(data, list) else []
    return tuple(card for card in cards if isinstance(card, dict) and text(card.get("id")))


def _models(cards: Iterable[dict[str, object]]) -> tuple[str, ...]:
    names: list[object] = []
    for card in cards:
        aliases = card.get("aliases")  # llama.cpp's --alias
        names += [card["id"], *(aliases if isinstance(aliases, list) else [])]
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def _context(card: dict[str, object]) -> int | None:
    return whole(card.get("max_model_len")) or whole(field(card, "meta", "n_ctx"))


def _drafts_always(told: Told) -> bool | None:
    return None if told.method is None else not told.method.lower().startswith(_DRAFTS_ON_MATCH)
