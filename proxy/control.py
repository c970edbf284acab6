"""The control plane: health, models, metrics, state, dashboard. Nothing here is on a request's way."""

import hmac
import json
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from typing import Any, Protocol

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from proxy import errors
from proxy.errors import GatewayError
from proxy.version import VERSION
from proxy.wire.door import too_large
from proxy.wire.headers import Headers

Snapshot = dict[str, Any]
BODY_BYTES = 16 * 1024 * 1024
"""Largest body the control plane reads (to explain a request without sending it)."""
Endpoint = Callable[..., Any]


class Answers(Protocol):
    """What the control plane shows; the application implements it."""

    admin_key_hash: bytes | None

    def ready(self) -> tuple[bool, str]:
        """Whether requests can be served, and why not."""

    async def state(self) -> Snapshot:
        """Everything that is known, as plain data."""

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The metrics page in the format that an ``Accept`` header asks for, and its content type."""

    def models(self) -> list[dict[str, object]]:
        """Entries of ``/v1/models``."""

    def may_enter(self, request: Request) -> bool:
        """The client's key is right."""

    def allows(self, origin: str) -> bool:
        """Pages of this origin may call."""

    def is_surface(self, path: str) -> bool:
        """A path that exists, for another method."""

    def judge(self, surface_path: str, body: bytes, headers: Headers) -> Snapshot:
        """Where a request with this body and these headers would go now, without sending it. Raises GatewayError."""


def problem(error: GatewayError, headers: dict[str, str] | None = None) -> Response:
    """An error of our own as an answer."""
    extra = dict(headers or {})
    if error.retry_after_seconds is not None:
        extra["retry-after"] = str(max(1, round(error.retry_after_seconds)))
    return Response(errors.body(error), error.status, extra, "application/json")


def public_app(answers: Answers, with_admin: bool) -> FastAPI:
    """The application on the clients' port."""
    app = FastAPI(title="draftlane", version=VERSION, openapi_url=None, redirect_slashes=False)
    app.include_router(_health(answers))
    app.include_router(_models(answers))
    if with_admin:
        app.include_router(admin_router(answers))
    _speak_openai(app, answers)
    return app


def admin_app(answers: Answers) -> FastAPI:
    """The application on the operators' port."""
    app = FastAPI(
        title="draftlane admin",
        version=VERSION,
        openapi_url="/admin/openapi.json",
        redirect_slashes=False,
    )
    app.include_router(_health(answers))
    app.include_router(admin_router(answers))
    _speak_openai(app, answers)
    return app


def _read(router: APIRouter, *paths: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
    """GET, and HEAD beside it, which the description leaves out: it would be the same operation twice."""

    def add(endpoint: Endpoint) -> Endpoint:
        for path in paths:
            router.get(path, **options)(endpoint)
            router.head(path, include_in_schema=False, response_model=None)(endpoint)
        return endpoint

    return add


def _health(answers: Answers) -> APIRouter:
    router = APIRouter()

    @_read(router, "/health", operation_id="health")
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok", "version": VERSION}

    @_read(router, "/ready", operation_id="ready")
    async def ready() -> JSONResponse:
        """Requests can be served now."""
        well, why = answers.ready()
        return JSONResponse({"ready": well, "detail": why}, 200 if well else 503)

    @_read(router, "/metrics", operation_id="metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus or OpenMetrics text."""
        page, content_type = await answers.page(request.headers.get("accept", ""))
        return Response(page, media_type=content_type)

    return router


def _models(answers: Answers) -> APIRouter:
    def key(request: Request) -> None:
        if not answers.may_enter(request):
            raise GatewayError("unauthorized", "A valid API key is required: Authorization: Bearer KEY.")

    router = APIRouter(dependencies=[Depends(key)])

    @_read(router, "/v1/models", "/models")
    async def models() -> dict[str, object]:
        """All models of all lanes."""
        return {"object": "list", "data": answers.models()}

    @_read(router, "/v1/models/{name:path}", "/models/{name:path}")
    async def model(name: str) -> dict[str, object]:
        """One model."""
        for card in answers.models():
            if card["id"] == name.rstrip("/"):
                return card
        raise GatewayError("model_not_found", f"The model {name!r} does not exist.", param="model")

    return router


ADMIN_PAGES = {
    "state": "Everything that is known.",
    "backends": "Load, health, speed and acceptance of each backend.",
    "verdicts": "Whether speculation pays, per model and class.",
    "alarms": "What is worth a look.",
}
"""Under ``/admin``: the whole state, and parts of it."""


def admin_router(answers: Answers) -> APIRouter:
    """State, and what would be decided; every route needs the admin key."""

    def key(request: Request) -> None:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        wanted = answers.admin_key_hash
        if wanted is None:
            raise GatewayError("forbidden", "No admin key is configured (server.admin_key_sha256).")
        if not hmac.compare_digest(sha256(given.encode("latin-1")).digest(), wanted):
            raise GatewayError("unauthorized", "The admin key is required: Authorization: Bearer KEY.")

    router = APIRouter(prefix="/admin", dependencies=[Depends(key)], responses=_errors(401, 403))

    def part(name: str) -> Callable[[], Any]:
        async def show() -> Any:
            state = await answers.state()
            return state if name == "state" else {name: state.get(name)}

        return show

    for name, what in ADMIN_PAGES.items():
        _read(router, f"/{name}", summary=what, operation_id=f"admin_{name}", response_model=None)(part(name))

    @router.post(
        "/explain",
        operation_id="admin_explain",
        response_model=None,
        openapi_extra=_ANY_BODY,
        responses=_errors(400, 404, 413),
    )
    async def explain(request: Request, path: str = "/v1/chat/completions") -> Snapshot:
        """Where a request would go now, and why, without sending it; ``x-draftlane-*`` headers count as on one."""
        return answers.judge(path, await _bounded(request), request.headers.raw)

    return router


async def _bounded(request: Request) -> bytes:
    """The body, read no further than ``BODY_BYTES``. Raises GatewayError (413)."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES:
            raise too_large(BODY_BYTES)
    return body


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: these statuses come with an OpenAI error object."""
    fields = {"message": {"type": "string"}, "type": {"type": "string"}}
    error = {"type": "object", "required": ["message", "type", "param", "code"], "properties": fields}
    schema = {"type": "object", "required": ["error"], "properties": {"error": error}}
    told = {"description": "An OpenAI error object.", "content": {"application/json": {"schema": schema}}}
    return dict.fromkeys(statuses, told)


_ANY_BODY = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}}


def dashboard(app: FastAPI) -> None:
    """Add the page; it asks for the admin key itself."""

    @app.get("/dashboard", include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(files("proxy.pages").joinpath("dashboard.html").read_text(encoding="utf-8"))


def _speak_openai(app: FastAPI, answers: Answers) -> None:
    """Errors as OpenAI objects, CORS, and 405 for the surfaces' paths."""

    @app.exception_handler(GatewayError)
    async def own(_: Request, error: GatewayError) -> Response:
        return problem(error)

    @app.exception_handler(StarletteHTTPException)
    async def starlette(request: Request, error: HTTPException) -> Response:
        return problem(_translated(error, request, answers), _allow(error, request, answers))

    @app.exception_handler(Exception)
    async def ours(_: Request, __: Exception) -> Response:
        return problem(GatewayError("internal", "The gateway failed to handle this request."))

    @app.middleware("http")
    async def cors(request: Request, call_next: Any) -> Response:
        origin = request.headers.get("origin")
        if request.method == "OPTIONS":
            return _preflight(request, origin, answers)
        response: Response = await call_next(request)
        if origin is not None and answers.allows(origin):
            response.headers["access-control-allow-origin"] = origin
            response.headers["vary"] = "origin"
        return response


def _translated(error: HTTPException, request: Request, answers: Answers) -> GatewayError:
    path = request.url.path
    if answers.is_surface(path):
        return GatewayError("method_not_allowed", f"{path} takes POST, not {request.method}.")
    if error.status_code == 405:
        return GatewayError("method_not_allowed", f"{path} does not take {request.method}.")
    if error.status_code == 404:
        return GatewayError("not_found", f"Nothing is served at {path}.")
    return GatewayError("bad_request", json.dumps(error.detail))


def _allow(error: HTTPException, request: Request, answers: Answers) -> dict[str, str]:
    """RFC 9110 §15.5.6: a 405 names the methods that would have been right."""
    if answers.is_surface(request.url.path):
        return {"allow": "POST, OPTIONS"}
    if error.status_code != 405:
        return {}
    posts = "POST" in (error.headers or {}).get("Allow", "")
    return {"allow": "POST, OPTIONS" if posts else "GET, HEAD, OPTIONS"}


def _preflight(request: Request, origin: str | None, answers: Answers) -> Response:
    headers = {"allow": "GET, HEAD, POST, OPTIONS"}
    if origin is not None and answers.allows(origin):
        asked = request.headers.get("access-control-request-headers", "authorization, content-type")
        headers |= {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, HEAD, POST, OPTIONS",
            "access-control-allow-headers": asked,
            "access-control-max-age": "600",
            "vary": "origin",
        }
    return Response(status_code=204, headers=headers)
