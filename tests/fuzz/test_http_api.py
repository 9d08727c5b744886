"""The HTTP API against its own description: every answer is in it, and none is a 5xx.

Every operation of /api/openapi.json is called with values that its schema allows, and with others.
Some names of existing objects are mixed in, so that requests get past the 404s.
"""

import os
from typing import Any, Final

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from leveret.testing.broker import broker
from tests.http.management import Api

pytestmark = pytest.mark.compiled_only("what answers HTTP has one form, and has tests in both")

CHECKS: Final = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
# Requests for each operation: one with the simplest values, and others. `make fuzz` sends more.
EXAMPLES: Final = int(os.environ.get("LEVERET_FUZZ_EXAMPLES") or 2)
KNOWN: Final = {
    "vhost": ["/"],
    "name": ["q", "x", "amq.topic", "amq.default"],
    "source": ["x", "amq.topic"],
    "destination": ["q", "x"],
    "kind": ["q", "e"],
    "node": ["test"],
    "user": ["victim"],
}
# A failed health check is a valid 5xx, and so is a request for a feature that the node lacks.
EXPECTED_5XX: Final = {503}
# It takes an archive; the tests of backups try invalid archives.
LEFT_OUT: Final = ("/api/restore/", "/api/backup")


def test_every_operation_answers_as_it_is_described(seed: int) -> None:
    print(f"seed {seed}")
    with broker(http=True) as server:
        api = Api(server)
        where = f"http://{server.host}:{server.http_port}"
        schema = schemathesis.openapi.from_url(f"{where}/api/openapi.json")
        schema.config.update(base_url=where)
        operations: list[Any] = [found.ok() for found in schema.get_all_operations()]
        tried = 0
        for operation in operations:
            if operation.path.startswith(LEFT_OUT):
                continue
            api.put("vhosts/%2F")
            api.put("users/victim", {"password_hash": "", "tags": ""})
            api.put("queues/%2F/q", {"durable": True})
            api.put("exchanges/%2F/x", {"type": "topic"})
            _fuzz(operation, seed)
            tried += 1
        assert tried > 80
        api.get("overview")


def _fuzz(operation: Any, seed: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(data=st.data())
    def ask(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(list(GenerationMode)), label="mode")
        case: Case = data.draw(operation.as_strategy(generation_mode=mode), label="case")
        for name, values in KNOWN.items():
            if name in (case.path_parameters or {}) and data.draw(st.booleans(), label=name):
                case.path_parameters[name] = data.draw(st.sampled_from(values))
        # A path without its last name belongs to another operation.
        hypothesis.assume(case.path == "/" or not case.formatted_path.endswith("/"))
        response = case.call(auth=("guest", "guest"))
        checks = [
            c for c in CHECKS if response.status_code not in EXPECTED_5XX or c is not CHECKS[0]
        ]
        case.validate_response(response, checks=checks)

    ask()
