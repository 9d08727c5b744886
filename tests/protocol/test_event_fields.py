"""Events carry text and tables of clients. No value of a client breaks its connection or the event.

A queue is bound to the event exchange with `#` while clients send client properties, names, tags
and arguments of every kind.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.compat import wire
from tests.compat.client import Method
from tests.protocol.stage import Peer, Stage, method, start_ok, tune_ok

LOWEST_FRAME_BYTES = 4096
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=60)
SCALARS = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=60),
    st.booleans(),
    st.none(),
    st.floats(),
    st.integers(-(2**63), 2**63 - 1),
    st.builds(lambda n: wire.Typed("T", n), st.integers(0, 2**64 - 1)),
    st.builds(lambda n: wire.Typed("i", n), st.integers(0, 2**32 - 1)),
    st.builds(lambda raw: wire.Typed("S", raw), st.binary(max_size=60)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=6)


def listening(stage: Stage) -> Peer:
    """Return a peer with a queue `events` that gets all events, and the lowest frame size."""
    peer = stage.opened(tune_ok(frame_max=LOWEST_FRAME_BYTES))
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="events")
    peer.send(1, "queue.bind", queue="events", exchange="amq.rabbitmq.event", routing_key="#")
    return peer


def keys_of_events(peer: Peer) -> list[str]:
    """Take all events, and return their routing keys. `Peer.take` checks the frame sizes."""
    keys: list[str] = []
    while True:
        (answer,) = peer.send(1, "basic.get", queue="events", no_ack=True)
        assert isinstance(answer, Method)
        if answer.name == "basic.get-empty":
            return keys
        keys.append(str(answer.fields["routing_key"]))


def connected(stage: Stage, properties: dict[str, object]) -> Peer:
    peer = stage.peer()
    opening = method(0, "connection.open", virtual_host="/")
    start = start_ok(client_properties=properties)
    peer.feed(wire.PROTOCOL_HEADER + start + tune_ok() + opening)
    return peer


def nested(depth: int) -> dict[str, object]:
    value: object = "x"
    for _ in range(depth):
        value = {"t": value}
    return {"deep": value}


def require_created(properties: dict[str, object]) -> None:
    stage = Stage()
    listener = listening(stage)
    keys_of_events(listener)
    peer = connected(stage, properties)
    assert peer.names()[-1] == "connection.open-ok"
    assert keys_of_events(listener) == ["connection.created"]
    assert stage.broker.turn.faults == []


@given(TABLES)
def test_client_properties_of_every_kind_become_an_event(properties: dict[str, object]) -> None:
    require_created(properties)


def test_hostile_client_properties_become_an_event() -> None:
    hostile: list[dict[str, object]] = [
        {"big": wire.Typed("T", 2**64 - 1)},
        nested(62),
        {"raw": wire.Typed("S", b"\xff" * 5000)},
        {"many": {f"k{n}": n for n in range(500)}},
        {"n" * 255: "x"},
        {"é" * 127: "x"},
    ]
    for properties in hostile:
        require_created(properties)


@given(name=NAMES.filter(bool), tag=NAMES, arguments=TABLES)
def test_names_tags_and_arguments_of_every_kind_become_events(
    name: str, tag: str, arguments: dict[str, object]
) -> None:
    stage = Stage()
    listener = listening(stage)
    peer = stage.opened()
    peer.open_channel(1)
    keys_of_events(listener)
    unknown = {f"x-unknown-{key}": value for key, value in arguments.items()}
    unknown = {key: value for key, value in unknown.items() if len(key.encode()) < 256}
    name = f"q-{name}"
    peer.feed(method(1, "queue.declare", queue=name, arguments=unknown))
    peer.feed(method(1, "queue.bind", queue=name, exchange="amq.headers", arguments=unknown))
    peer.feed(method(1, "basic.consume", queue=name, consumer_tag=tag, arguments=unknown))
    peer.feed(method(1, "queue.delete", queue=name))
    assert "connection.close" not in peer.names()
    assert stage.broker.turn.faults == []
    keys_of_events(listener)


def test_arguments_longer_than_a_frame_are_left_out() -> None:
    stage = Stage()
    listener = listening(stage)
    peer = stage.opened()
    peer.open_channel(1)
    keys_of_events(listener)
    long = {"x-note": "x" * 10_000}
    assert len(peer.send(1, "queue.declare", queue="q", arguments=long)) == 1
    assert keys_of_events(listener) == ["queue.created"]
