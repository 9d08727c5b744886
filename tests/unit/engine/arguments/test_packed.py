"""The limits of arguments, and the form in which they are kept."""

import pytest

from leveret.engine.arguments.packed import (
    ARGUMENT_BYTES_MAX,
    ARGUMENT_VALUES_MAX,
    HEADER_BINDING_VALUES_MAX,
    pack,
    require_modest,
    unpack,
)
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import table_of
from tests.unit.engine.front import Client, names, refusal

# A declare of each kind of object that has arguments.
DECLARES: list[tuple[str, dict[str, object], str]] = [
    ("queue.declare", {"queue": "new"}, "queue 'new' in vhost '/'"),
    ("exchange.declare", {"exchange": "e", "type": "direct"}, "exchange 'e' in vhost '/'"),
    (
        "queue.bind",
        {"queue": "q", "exchange": "amq.headers", "routing_key": "k"},
        "a binding of exchange 'amq.headers' in vhost '/'",
    ),
    ("basic.consume", {"queue": "q", "consumer_tag": "t"}, "consumer 't'"),
]
declares = pytest.mark.parametrize(("name", "fields", "what"), DECLARES, ids=lambda p: str(p)[:12])


def test_arguments_come_back_as_they_were() -> None:
    given = table_of({"a": 1, "b": "text", "c": [True, None, {"d": 2.5}], "e": b"\xff"})
    assert unpack(pack(given)) == given
    assert list(unpack(pack(given))) == list(given)
    assert unpack(pack({})) == {}


def test_the_greatest_allowed_size_and_number_are_accepted() -> None:
    room = ARGUMENT_BYTES_MAX - len(pack(table_of({"a": ""})))
    require_modest("it", table_of({"a": "x" * room}))
    with pytest.raises(PreconditionFailedError):
        require_modest("it", table_of({"a": "x" * (room + 1)}))
    require_modest("it", table_of({"a": [None] * (ARGUMENT_VALUES_MAX - 1)}))
    with pytest.raises(PreconditionFailedError):
        require_modest("it", table_of({"a": [None] * ARGUMENT_VALUES_MAX}))


@declares
def test_arguments_of_many_bytes_are_refused(
    name: str, fields: dict[str, object], what: str
) -> None:
    client = Client()
    client.queue("q")
    events = client.peer.send(1, name, **fields, arguments={"x-note": "x" * 20_000})
    level, code, text = refusal(events)
    assert (level, code) == ("channel", 406)
    assert text == (
        f"PRECONDITION_FAILED - the arguments of {what} have 20016 bytes; at most 16384 are allowed"
    )


@declares
@pytest.mark.parametrize(
    "value", [[None] * 3000, [[[{"a": 1, "b": 2}] * 500]]], ids=["flat", "deep"]
)
def test_arguments_of_many_values_are_refused(
    name: str, fields: dict[str, object], what: str, value: object
) -> None:
    client = Client()
    client.queue("q")
    _, code, text = refusal(client.peer.send(1, name, **fields, arguments={"x-note": value}))
    assert code == 406
    assert text.startswith(f"PRECONDITION_FAILED - the arguments of {what} have ")
    most = HEADER_BINDING_VALUES_MAX if name == "queue.bind" else ARGUMENT_VALUES_MAX
    assert text.endswith(f" values; at most {most} are allowed")


@declares
def test_a_refused_declare_has_made_nothing(
    name: str, fields: dict[str, object], what: str
) -> None:
    client = Client()
    queue = client.queue("q")
    vhost = client.stage.broker.vhost("/")
    before = (len(vhost.queues), len(vhost.exchanges), len(vhost.exchanges["amq.headers"].bindings))
    client.peer.send(1, name, **fields, arguments={"x-note": "x" * 20_000})
    after = (len(vhost.queues), len(vhost.exchanges), len(vhost.exchanges["amq.headers"].bindings))
    assert (after, queue.consumers) == (before, [])


def test_declared_arguments_are_kept_shown_and_compared() -> None:
    client = Client()
    note = {"x-note": [1, {"deep": "text"}], "x-max-length": 5}
    send = {"queue": "n", "arguments": note}
    assert names(client.peer.send(1, "queue.declare", **send)) == ["queue.declare-ok"]
    assert names(client.peer.send(1, "queue.declare", **send)) == ["queue.declare-ok"]
    queue = client.stage.broker.vhost("/").queues["n"]
    assert queue.arguments == table_of(note)
    other = {**send, "arguments": {**note, "x-max-length": 6}}
    assert refusal(client.peer.send(1, "queue.declare", **other))[1] == 406


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "headers"}], ids=["plain", "delayed"])
def test_headers_binding_has_few_values_because_each_is_indexed(
    arguments: dict[str, object],
) -> None:
    client = Client()
    client.queue("q")
    kind = "x-delayed-message" if arguments else "headers"
    client.peer.send(1, "exchange.declare", exchange="h", type=kind, arguments=arguments)
    most = {"x-match": "any", **{f"h{n}": n for n in range(HEADER_BINDING_VALUES_MAX - 1)}}
    send = {"queue": "q", "exchange": "h", "routing_key": ""}
    assert names(client.peer.send(1, "queue.bind", **send, arguments=most)) == ["queue.bind-ok"]
    found = refusal(client.peer.send(1, "queue.bind", **send, arguments={**most, "more": 1}))
    assert found[1] == 406
    assert "have 65 values; at most 64 are allowed" in str(found)
    assert len(client.stage.broker.vhost("/").exchanges["h"].bindings) == 1
