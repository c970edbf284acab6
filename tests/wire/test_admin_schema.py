"""The admin API keeps the promises of its own OpenAPI document (schemathesis)."""

import asyncio
from hashlib import sha256
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from proxy.control import admin_app
from tests.scripted.clock import Clock
from tests.scripted.rig import TimedSite, config_for

KEY = "admin-key"
BACKENDS = {"spec": "http://127.0.0.1:1", "plain": "http://127.0.0.1:2"}


async def _site() -> TimedSite:
    return TimedSite(config_for(BACKENDS, {"admin_key_sha256": sha256(KEY.encode()).hexdigest()}), Clock())


SITE = asyncio.run(_site())
SCHEMA = schemathesis.openapi.from_asgi("/admin/openapi.json", admin_app(SITE.showing))


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_operation_keeps_to_the_document(case: schemathesis.Case[Any]) -> None:
    answered = case.call(headers={"authorization": f"Bearer {KEY}"})
    case.validate_response(answered, checks=[not_a_server_error, response_schema_conformance, status_code_conformance])


@SCHEMA.parametrize()
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_admin_operation_answers_without_the_key(case: schemathesis.Case[Any]) -> None:
    """Other methods are nobody's operation: 405, or 204 for a preflight, with a key and without."""
    answered = case.call(headers={"authorization": "Bearer wrong"})
    assert answered.status_code in (200, 204, 401, 405)
    if answered.status_code == 200:
        assert not case.path.startswith("/admin")
    if answered.status_code == 401:
        assert answered.json()["error"]["code"] == "invalid_api_key"
