"""An import that the engine would refuse in the middle is refused before it changes anything."""

from collections import deque
from typing import Any

import pytest

from leveret.auth import UserDirectory
from leveret.definitions import Definitions
from leveret.definitions.importing import Importer
from leveret.definitions.object_importer import put_exchange
from leveret.engine.broker import Broker
from leveret.engine.vhosts.state import DEFINITION_BYTES_MAX
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import table_of

STREAM = {"x-queue-type": "stream"}


def node() -> tuple[Broker, Vhost]:
    """Return a broker with the classic queue `there` and the headers exchange `sorted`."""
    broker = Broker(1)
    broker.begin_turn(1)
    vhost = broker.vhost("/")
    vhost.declare_queue("there", durable=True, arguments={})
    vhost.declare_exchange("sorted", "headers", durable=True, arguments={})
    return broker, vhost


def take(broker: Broker, **document: list[dict[str, Any]]) -> None:
    definitions = Definitions(broker, "hare", "4.3.0")
    directory = UserDirectory(broker.register, lambda: 1)
    rows = {name: [{"vhost": "/", **row} for row in found] for name, found in document.items()}
    importer = Importer(definitions, directory, rows, owner="guest")
    deque(importer.check(), maxlen=0)
    deque(importer.steps(), maxlen=0)


def queue(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": named(arguments)}


def exchange(name: str, kind: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "arguments": named(arguments)}


def binding(source: str, target: str, key: str, **arguments: Any) -> dict[str, Any]:
    ends = {"source": source, "destination": target, "destination_type": "queue"}
    return {**ends, "routing_key": key, "arguments": arguments}


def named(arguments: dict[str, Any]) -> dict[str, Any]:
    return {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}


def max_queues(number: int) -> dict[str, Any]:
    return {"component": "vhost-limits", "name": "limits", "value": {"max-queues": number}}


REFUSED: list[tuple[dict[str, list[dict[str, Any]]], str]] = [
    ({"queues": [queue("a", remember="there")]}, "queue 'there' is not a stream"),
    ({"exchanges": [exchange("a", "topic", remember="there")]}, "queue 'there' is not a stream"),
    ({"queues": [queue("s"), queue("a", remember="s")]}, "queue 's' is not a stream"),
    ({"queues": [queue("a", remember="amq.s")]}, "reserved prefix"),
    (
        {"queues": [queue("a", dead_letter_exchange="", dead_letter_routing_key="k" * 256)]},
        "at most 255 bytes",
    ),
    (
        {"bindings": [binding("sorted", "there", "", **{f"h{n}": n for n in range(65)})]},
        "at most 64 are allowed",
    ),
    (
        {
            "exchanges": [exchange("local", "x-local-random")],
            "queues": [queue("q", queue_type="quorum")],
            "bindings": [binding("local", "q", "")],
        },
        "classic queues only",
    ),
    (
        {
            "exchanges": [exchange("e", "x-consistent-hash"), exchange("e", "fanout")],
            "bindings": [binding("e", "there", "not a number")],
        },
        "number",
    ),
    (
        {
            "parameters": [max_queues(3)],
            "queues": [queue("a", remember="history"), queue("b")],
        },
        "Adding 3 queue.s. .* limit of 3 queue.s.",
    ),
    ({"queues": [queue("there", max_length=-1)]}, "value_negative"),
]


@pytest.mark.parametrize(("document", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_import_that_would_stop_in_the_middle_changes_nothing(
    document: dict[str, list[dict[str, Any]]], reason: str
) -> None:
    broker, vhost = node()
    before = (list(vhost.queues), list(vhost.exchanges), vhost.binding_count, vhost.queues_max)
    with pytest.raises(PreconditionFailedError, match=reason):
        take(broker, vhosts=[{"name": "new"}], **document)
    after = (list(vhost.queues), list(vhost.exchanges), vhost.binding_count, vhost.queues_max)
    assert (after, list(broker.vhosts)) == (before, ["/"])


def test_import_names_the_limit_that_it_would_exceed() -> None:
    broker, vhost = node()
    vhost.bind("sorted", vhost.queues["there"], "", {})
    vhost.bindings_max = 2
    vhost.exchanges_max = len(vhost.exchanges) + 1
    rows = [binding("sorted", "there", ""), binding("sorted", "there", "a")]
    with pytest.raises(PreconditionFailedError, match=r'Adding 2 binding.*host "/".*limit of 2'):
        take(broker, bindings=[*rows, binding("sorted", "there", "b")])
    with pytest.raises(PreconditionFailedError, match=r'Adding 2 exchange.*host "/".*limit of'):
        take(broker, exchanges=[exchange("a", "topic"), exchange("b", "topic")], bindings=rows)
    assert ("a" in vhost.exchanges, vhost.binding_count) == (False, 1)
    take(broker, exchanges=[exchange("a", "topic"), exchange("sorted", "headers")], bindings=rows)
    assert ("a" in vhost.exchanges, vhost.binding_count) == (True, 2)


def test_import_with_too_many_bytes_of_definitions_changes_nothing() -> None:
    broker, vhost = node()
    take(broker, queues=[queue("q" * 200)])
    vhost.definition_bytes_max = vhost.definition_bytes + 600
    with pytest.raises(
        PreconditionFailedError,
        match=r"Adding \d+ definition byte\(s\) to .*limit of \d+ definition byte",
    ):
        take(broker, queues=[queue("a" * 200), queue("b" * 200)])
    assert list(vhost.queues) == ["there", "q" * 200]
    take(broker, queues=[queue("q" * 200), queue("a" * 200)])
    assert "a" * 200 in vhost.queues


def test_import_of_objects_that_exist_is_not_limited() -> None:
    """The limit of a vhost may be higher than the usual one, or was lowered."""
    broker, vhost = node()
    vhost.definition_bytes_max = 2 * DEFINITION_BYTES_MAX
    rows = [exchange(f"x{number}", "direct", blob="b" * 16_000) for number in range(4_200)]
    for row in rows:
        put_exchange(vhost, row)
    assert vhost.definition_bytes > DEFINITION_BYTES_MAX
    vhost.definition_bytes_max = 1
    take(broker, exchanges=rows)


def test_partition_that_exists_as_another_queue_stops_the_import() -> None:
    broker, vhost = node()
    vhost.declare_queue("parts-1", durable=True, arguments={})
    with pytest.raises(PreconditionFailedError, match=r"'parts-1' .* it is not a stream"):
        take(
            broker,
            queues=[queue("new")],
            exchanges=[exchange("parts", "x-super-stream", partitions=2)],
        )
    assert list(vhost.queues) == ["there", "parts-1"]


def test_default_queue_type_of_the_document_counts() -> None:
    broker, vhost = node()
    row = {"name": "/", "default_queue_type": "rabbit_quorum_queue"}
    take(broker, vhosts=[row], queues=[queue("new")])
    assert vhost.queues["new"].is_quorum


def test_existing_queue_of_another_type_is_kept() -> None:
    broker, vhost = node()
    vhost.declare_queue("log", durable=True, arguments=table_of(STREAM))
    take(broker, queues=[queue("log"), queue("new", remember="log")])
    assert list(vhost.queues) == ["there", "log", "new"]


def test_a_limit_of_more_than_64_bits_limits_nothing() -> None:
    broker, vhost = node()
    take(broker, parameters=[max_queues(2**70)])
    take(broker, queues=[queue("new")])
    assert {"there", "new"} == set(vhost.queues)


def test_a_document_of_one_vhost_may_name_an_object_for_several_vhosts() -> None:
    broker, vhost = node()
    definitions = Definitions(broker, "hare", "4.3.0")
    directory = UserDirectory(broker.register, lambda: 1)
    rows = [{"vhost": name, **queue("new", max_length=5)} for name in ("a", "b")]
    importer = Importer(definitions, directory, {"queues": rows}, "/", owner="guest")
    deque(importer.check(), maxlen=0)
    deque(importer.steps(), maxlen=0)
    assert list(vhost.queues) == ["there", "new"]
    rows[1] = {"vhost": "b", **queue("new", max_length=6)}
    importer = Importer(definitions, directory, {"queues": rows}, "/", owner="guest")
    with pytest.raises(PreconditionFailedError, match="queues: new is in the document twice"):
        deque(importer.check(), maxlen=0)
