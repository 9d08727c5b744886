"""A request for few of many bindings converts these few: nobody else is served meanwhile."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from leveret.http.management import bindings
from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api

BINDINGS = 30
PAIR = "bindings/%2F/e/amq.direct/q/q"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[bindings.Entry]:
    """The bindings that were converted since the begin of the test."""
    found: list[bindings.Entry] = []
    convert = bindings._binding_row

    def note(entry: bindings.Entry) -> bindings.BindingRow:
        found.append(entry)
        return convert(entry)

    monkeypatch.setattr(bindings, "_binding_row", note)
    return found


def test_few_bindings_are_converted(server: RunningBroker, converted: list[bindings.Entry]) -> None:
    api = Api(server)
    api.put("queues/%2F/q", {})
    for number in range(BINDINGS):
        api.post(PAIR, {"routing_key": f"key/{number}", "arguments": {}})
    assert len(api.get(f"{PAIR}?page=1&page_size=2")["items"]) == 2
    assert len(api.get("queues/%2F/q/bindings?page=1&page_size=2")["items"]) == 2
    assert len(api.get("bindings/%2F?page=1&page_size=2")["items"]) == 2
    name = quote("key%2F7", safe="")
    assert api.get(f"{PAIR}/{name}")["routing_key"] == "key/7"
    assert api.ask("DELETE", f"{PAIR}/{name}").status == 204
    assert api.ask("DELETE", f"{PAIR}/{name}").status == 404
    assert len(converted) <= 10


def test_binding_with_arguments_is_found_among_those_of_its_key(server: RunningBroker) -> None:
    api = Api(server)
    api.put("queues/%2F/other", {})
    pair = "bindings/%2F/e/amq.direct/q/other"
    for key in ("", "a~b", "%2F", "a b*#"):
        for arguments in ({}, {"n": 1}, {"n": 2}):
            api.post(pair, {"routing_key": key, "arguments": arguments})
    found = api.get(pair)
    assert len(found) == 12
    for bound in found:
        for name in (bound["properties_key"], quote(bound["properties_key"], safe="")):
            assert api.get(f"{pair}/{name}") == bound
