"""The description of the API: complete, and a page that people can read."""

import re
from typing import Any

import jsonschema_rs
import pytest

from leveret.http.app import OPERATIONS, make_app
from leveret.http.framework.openapi import describe, page_of
from leveret.http.framework.operations import Access, Operation
from tests.http.fake_node import FakeNode

DESCRIPTION = describe(OPERATIONS)


def described(operation: Operation) -> dict[str, Any]:
    path = re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)
    found: dict[str, Any] = DESCRIPTION["paths"][path][operation.method.lower()]
    return found


def test_every_route_is_described() -> None:
    routes = {re.sub(r"\{(\w+):\w+\}", r"{\1}", r.path) for r in make_app(FakeNode()).routes}  # type: ignore[attr-defined]
    assert routes == set(DESCRIPTION["paths"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_operation_is_described_completely(operation: Operation) -> None:
    description = described(operation)
    assert description["summary"].endswith((".", "?")) or description["summary"]
    named = [p["name"] for p in description["parameters"] if p["in"] == "path"]
    assert named == re.findall(r"\{(\w+)", operation.path)
    asked = {p["name"] for p in description["parameters"] if p["in"] == "query"}
    assert asked == {query.name for query in operation.query}
    assert ("requestBody" in description) == (operation.body is not None)
    success = description["responses"][str(operation.status)]
    has_content = operation.answer is not None or operation.media != "application/json"
    assert ("content" in success) == has_content
    assert (description["security"] == []) == (operation.access is Access.PUBLIC)
    for status in ("400", "401", "404"):
        assert "content" in description["responses"][status]


def test_operation_ids_are_unique() -> None:
    names = [described(operation)["operationId"] for operation in OPERATIONS]
    assert len(names) == len(set(names))


def test_references_resolve_and_schemas_are_valid() -> None:
    schemas = DESCRIPTION["components"]["schemas"]
    referred = re.findall(r"#/components/schemas/([\w.]+)", str(DESCRIPTION))
    assert set(referred) <= set(schemas)
    for schema in schemas.values():
        assert jsonschema_rs.meta.is_valid(schema)


def test_page_lists_every_operation_and_loads_nothing() -> None:
    page = page_of(DESCRIPTION)
    for operation in OPERATIONS:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)
        assert f"<b>{operation.method}</b> <code>{path}</code>" in page
    assert "<script" not in page
    assert "http://" not in page and "https://" not in page
    assert page.count("<details") == page.count("</details>")
