"""The simulated engine as an ASGI application."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Scope, Send

from proxy.simulated import other_shapes, pages, tokens, wanted
from proxy.simulated.answers import read_body, send_bytes, send_events, send_json, unless_gone
from proxy.simulated.character import Character
from proxy.simulated.clockwork import Clockwork, Run
from proxy.simulated.shapes import Call, Shapes, call_of, event
from proxy.simulated.shapes_llamacpp import LlamacppShapes
from proxy.simulated.shapes_vllm import VllmShapes
from proxy.simulated.wanted import Refusal, Wanted

SHAPES: dict[str, Callable[[Character], Shapes]] = {"vllm": VllmShapes, "llamacpp": LlamacppShapes}
_READERS: dict[str, Callable[[dict[str, Any], Character], Wanted]] = {
    "/v1/chat/completions": wanted.chat,
    "/v1/completions": wanted.completions,
    "/v1/responses": wanted.responses,
    "/v1/messages": wanted.messages,
}
_CHANGEABLE = (
    "acceptance",
    "by_content",
    "step_ms",
    "token_us",
    "draft_ms",
    "prefill_us",
    "output_scale",
    "max_requests",
    "depth",
)


class SimulatedEngine:
    """The application. Its engine runs from the lifespan's start to its end."""

    def __init__(self, character: Character) -> None:
        """An engine of that character."""
        self.character = character
        self.clockwork: Clockwork
        self.down = False
        self._created = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except Refusal as refusal:
            await self._refuse(send, refusal)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self.clockwork = Clockwork(self.character)
        work = asyncio.create_task(self.clockwork.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await send({"type": "lifespan.shutdown.complete"})

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = str(scope["path"]), str(scope["method"])
        if path == "/simulated":
            await self._control(method, receive, send)
        elif self.down:
            await send_json(send, {"error": {"message": "simulated outage", "type": "server_error", "code": 503}}, 503)
        elif self.character.key and path.startswith("/v1") and not self._allowed(scope):
            await send_json(send, {"error": "Unauthorized"}, 401)
        elif method in ("GET", "HEAD"):
            await self._page(path, send)
        elif method == "POST":
            await self._post(path, scope, receive, send)
        else:
            await send_json(send, {"detail": "Method Not Allowed"}, 405)

    def _allowed(self, scope: Scope) -> bool:
        given = dict(scope["headers"])
        key = (self.character.key or "").encode()
        return given.get(b"authorization") == b"Bearer " + key or given.get(b"x-api-key") == key

    async def _page(self, path: str, send: Send) -> None:
        character, batch = self.character, self.clockwork.batch
        both: dict[str, Callable[[], object]] = {
            "/v1/models": lambda: pages.models(character, self._created),
            "/version": lambda: pages.version(character),
        }
        own: dict[str, dict[str, Callable[[], object]]] = {
            "vllm": {
                "/server_info": lambda: pages.server_info(character),
                "/load": lambda: {"server_load": len(batch.running) + len(batch.waiting)},
            },
            "llamacpp": {
                "/props": lambda: pages.props(character),
                "/slots": lambda: pages.slots(character, len(batch.running)),
                "/health": lambda: {"status": "ok"},
            },
        }
        page = (both | own[character.dialect]).get(path)
        if page is not None:
            await send_json(send, page())
        elif path == "/metrics":
            await send_bytes(send, pages.metrics(batch).encode(), b"text/plain; version=0.0.4")
        elif path in ("/health", "/ping"):
            await send_bytes(send, b"", b"text/plain")
        elif path in _READERS and character.dialect == "vllm":
            await send_json(send, {"detail": "Method Not Allowed"}, 405, ((b"allow", b"POST"),))
        else:
            raise self._not_found()

    async def _post(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive)
        if path in _READERS:
            asked = _READERS[path](wanted.parse(raw, self.character), self.character)
            given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1") or None
            call = call_of(asked, path != "/v1/completions", given)
            await unless_gone(receive, self._generate(path, call, send))
        elif path == "/v1/messages/count_tokens":
            asked = wanted.messages(wanted.parse(raw, self.character), self.character)
            await send_json(send, {"input_tokens": asked.orders[0].prompt_tokens})
        elif path in ("/tokenize", "/detokenize"):
            await send_json(send, self._tokenize(path, wanted.parse(raw, self.character)))
        elif path == "/v1/embeddings":
            await send_json(send, self._embeddings(wanted.parse(raw, self.character)))
        else:
            raise self._not_found()

    async def _generate(self, path: str, call: Call, send: Send) -> None:
        shapes = SHAPES[self.character.dialect](self.character)
        headers = ((b"x-request-id", call.id.partition("-")[2].encode("latin-1", "replace")),)
        with self.clockwork.begin(call.wanted.orders) as run:
            if call.wanted.stream:
                await send_events(send, _events(path, call, run, shapes), headers)
                return
            async for _ in run.steps():
                pass
            whole = {"/v1/responses": other_shapes.response, "/v1/messages": other_shapes.message}
            await send_json(send, whole.get(path, shapes.answer)(call, run), headers=headers)

    def _tokenize(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        vllm = self.character.dialect == "vllm"
        if path == "/detokenize":
            given = body.get("tokens")
            text = tokens.text_of(one for one in given if isinstance(one, int)) if isinstance(given, list) else ""
            return {"prompt" if vllm else "content": text}
        text = wanted.flat(body.get("prompt", body.get("messages")) if vllm else body.get("content"))
        ids = [tokens.token_id(piece) for piece in tokens.pieces(text)]
        return (
            {"count": len(ids), "max_model_len": self.character.context_tokens, "tokens": ids}
            if vllm
            else {"tokens": ids}
        )

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("input")
        texts = [wanted.flat(one) for one in given] if isinstance(given, list) else [wanted.flat(given)]
        data = [{"object": "embedding", "index": at, "embedding": _vector(text)} for at, text in enumerate(texts)]
        read = sum(tokens.count(text) for text in texts)
        usage = {"prompt_tokens": read, "total_tokens": read}
        return {"object": "list", "data": data, "model": self.character.model, "usage": usage}

    async def _control(self, method: str, receive: Receive, send: Send) -> None:
        if method == "POST":
            self._change(wanted.parse(await read_body(receive), replace(self.character, dialect="llamacpp")))
        settings = {name: getattr(self.character, name) for name in _CHANGEABLE}
        await send_json(send, {"simulated": True, "down": self.down, "stalled": self.clockwork.stalled, **settings})

    def _change(self, asked: dict[str, Any]) -> None:
        try:
            changed = replace(self.character, **{name: asked[name] for name in _CHANGEABLE if name in asked})
        except (TypeError, ValueError) as error:
            raise Refusal(400, str(error)) from error
        self.character = changed
        self.clockwork.become(changed)
        self.down = bool(asked.get("down", self.down))
        self.clockwork.stall(bool(asked.get("stalled", self.clockwork.stalled)))
        if asked.get("reset"):
            self.clockwork.reset()

    def _not_found(self) -> Refusal:
        kind = "not_found_error" if self.character.dialect == "llamacpp" else ""
        return Refusal(404, "File Not Found" if kind else "Not Found", kind)

    async def _refuse(self, send: Send, refusal: Refusal) -> None:
        if not refusal.kind:  # FastAPI's own words, before vLLM is reached
            await send_json(send, {"detail": refusal.message}, refusal.status)
            return
        error = {
            "message": refusal.message,
            "type": refusal.kind,
            "param": None,
            "code": refusal.status,
            **refusal.fields,
        }
        if self.character.dialect == "llamacpp":
            error.pop("param")
        await send_json(send, {"error": error}, refusal.status)


def _vector(text: str) -> list[float]:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return [byte / 127.5 - 1 for byte in digest]


def _events(path: str, call: Call, run: Run, shapes: Shapes) -> AsyncIterator[bytes]:
    if path == "/v1/responses":
        return other_shapes.response_events(call, run, shapes)
    if path == "/v1/messages":
        return other_shapes.message_events(call, run, shapes)
    return _completion_events(call, run, shapes)


async def _completion_events(call: Call, run: Run, shapes: Shapes) -> AsyncIterator[bytes]:
    opened: set[int] = set()
    async for index, pieces, finish in run.steps():
        data = b""
        if index not in opened:
            opened.add(index)
            if call.chat:
                data = event(shapes.opening(call, run, index))
            elif call.wanted.echo:
                data = b"".join(map(event, shapes.chunks(call, run, index, (run.jobs[index].order.prompt,), None)))
        yield data + b"".join(map(event, shapes.chunks(call, run, index, pieces, finish)))
    closing = shapes.closing(call, run)
    if closing is not None:
        yield event(closing)
    yield b"data: [DONE]\n\n"
