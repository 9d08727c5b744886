"""No message that a client can publish stops a start: recovery parks what it cannot handle."""

import json

import pytest

from leveret.engine.arguments.packed import pack
from leveret.engine.vhosts.definition_records import encode_queue, encode_queue_deletion
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from leveret.wire.tables import encode_table, table_of
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

TTL_MS = 1_000
LONG_KEY = "k" * 300


def set_old_policy(stage: StorageStage) -> None:
    """Set a dead-letter key that no routing key can be, as an older version accepted it."""
    value = {
        "pattern": "^faulty$",
        "apply-to": "queues",
        "priority": 0,
        "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": LONG_KEY},
    }
    stage.broker.begin_turn(stage.now_ms)
    stage.broker.register.put("policy", json.dumps(["/", "old"]), json.dumps(value))
    stage.end_turn()


def test_start_parks_a_message_that_it_cannot_dead_letter() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    arguments = {"x-message-ttl": TTL_MS}
    client.declare("dead")
    client.declare("faulty", **arguments)
    client.declare(
        "good", **arguments, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    set_old_policy(stage)
    for queue in ("good", "faulty", "good"):
        client.publish(queue, f"of {queue}".encode())
    stage.sync_all()
    for _ in range(2):  # the second start finds what the first has written
        stage = StorageStage(stage.killed(), now_ms=stage.now_ms + TTL_MS + 1)
        stage.broker.on_pulse(stage.now_ms)
        stage.end_turn()
        stage.sync_all()
        assert bodies_in(stage, "dead") == [b"of good", b"of good"]
        assert bodies_in(stage, "leveret.parked") == [b"of faulty"]
        assert bodies_in(stage, "faulty") == []


def write_definition(stage: StorageStage, *definitions: bytes) -> None:
    """Write definitions as another version or a faulty one would."""
    stage.broker.begin_turn(stage.now_ms)
    for definition in definitions:
        stage.store.journal.write_definition(definition)
    stage.end_turn()
    stage.sync_all()


def restarted(stage: StorageStage) -> StorageStage:
    return StorageStage(stage.killed(), now_ms=stage.now_ms)


def test_queue_with_an_argument_that_is_refused_now_keeps_its_messages() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **{"x-max-priority": 3})
    queue = stage.broker.vhost("/").queues["q"]
    old = {"x-message-ttl": "soon", "x-max-priority": 3, "x-max-length": -1}
    deletion = encode_queue_deletion(queue)
    queue.packed_arguments = pack(table_of(old))
    write_definition(stage, deletion, encode_queue(queue))
    client.publish("q", b"kept")
    stage.sync_all()
    stage = restarted(stage)
    assert stage.broker.turn.fault_count == 1
    assert "'x-message-ttl, x-max-length' of queue 'q'" in stage.found.faults[0]
    kept = stage.broker.vhost("/").queues["q"]
    assert list(kept.arguments) == ["x-max-priority"]
    assert bodies_in(stage, "q") == [b"kept"]


BAD_DEFINITIONS: list[dict[str, object]] = [
    {},
    {"op": 5},
    {"op": "queue"},
    {"op": "queue", "vhost": "/", "name": "n" * 300},
    {"op": "queue", "vhost": "/", "name": "typed", "arguments": {"x-queue-type": "no such type"}},
    {"op": "exchange", "vhost": "/", "name": "e", "type": "no such type"},
    {"op": "exchange", "vhost": "/", "name": "amq.direct", "type": "fanout"},
    {"op": "bind", "vhost": "/", "source": "no such exchange", "target": "q", "to_queue": True},
    {"op": "bind", "vhost": "/", "source": "amq.headers", "target": "q", "to_queue": True}
    | {"arguments": {"x-match": 5}},
    {"op": "id", "id": "text"},
    {"op": "entry", "kind": "policy", "key": "no json", "value": "{}"},
    {"op": "entry", "kind": "policy", "key": '["/", "p"]', "value": "no json"},
    {"op": "entry", "kind": "policy", "key": '["/", "p"]', "value": '{"pattern": "("}'},
    {"op": "entry", "kind": "operator_policy", "key": "[]", "value": "[]"},
    {"op": "entry", "kind": "vhost", "key": "/", "value": "no json"},
    {"op": "entry", "kind": "vhost-limits", "key": "/", "value": "no json"},
    {"op": "vhost-", "vhost": "no such vhost"},
    {"op": "queue-", "vhost": "/", "name": "no such queue"},
    {"op": "exchange-", "vhost": "/", "name": "amq.topic"},
]


@pytest.mark.parametrize("bad", BAD_DEFINITIONS)
def test_start_skips_a_definition_that_it_cannot_restore(bad: dict[str, object]) -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    write_definition(stage, encode_table(table_of(bad)))
    client.declare("after")
    client.publish("q", b"a")
    client.publish("after", b"b")
    stage.sync_all()
    stage = restarted(restarted(stage))
    assert bodies_in(stage, "q") == [b"a"]
    assert bodies_in(stage, "after") == [b"b"]


def test_repair_reports_a_definition_that_a_start_cannot_restore() -> None:
    stage = StorageStage(FakeDisk())
    bad = {"op": "exchange", "vhost": "/", "name": "e", "type": "no such type"}
    write_definition(stage, encode_table(table_of(bad)))
    report = repair(stage.killed(), dry_run=True)
    assert report.is_sound
    (line,) = report.lines()
    assert line.startswith("a start reports: restoring the definition exchange 'e' in vhost '/'")


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = {"t": value}
    return value


@pytest.mark.parametrize("kind", ["queue", "binding", "exchange"])
def test_arguments_of_any_depth_that_are_taken_survive_a_start(kind: str) -> None:
    stage = StorageStage(FakeDisk())
    taken = 0
    for depth in range(1, 140):
        client = Client(stage)  # a refusal may close the connection
        arguments = {"x-custom": nested(depth)}
        name = f"n{depth}"
        if kind == "exchange":
            events = client.call(
                2,
                "exchange.declare",
                exchange=name,
                type="fanout",
                durable=True,
                arguments=arguments,
            )
        elif kind == "queue":
            events = client.call(2, "queue.declare", queue=name, durable=True, arguments=arguments)
        else:
            client.declare(name)
            events = client.call(
                2,
                "queue.bind",
                queue=name,
                exchange="amq.direct",
                routing_key="k",
                arguments=arguments,
            )
        taken += bool(events and events[0].name.endswith("-ok"))
        client.peer.lose()
    assert taken > 10
    stage.sync_all()
    client = Client(stage)
    client.declare("last")
    client.publish("last", b"a")
    stage.sync_all()
    stage = restarted(stage)
    assert stage.broker.turn.fault_count == 0
    assert bodies_in(stage, "last") == [b"a"]
