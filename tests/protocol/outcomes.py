"""The table of outcomes: every method and frame in every state of a connection and a channel.

A table has a line for each input; `*` stands for all inputs that have no line. The outcomes:

    nothing                no frame comes, and the connection goes on
    NAME                   this method comes back on the same channel
    channel CODE           channel.close with this code and the ids of the method sent
    connection CODE        connection.close with this code and the ids of the method sent
    connection CODE C.M    connection.close with these ids
    hang up                the socket is closed; `X, hang up` sends X first
    hang up later          no frame comes, and the socket is closed after a delay

The codes were recorded from RabbitMQ 3.10.8 over a socket. This table differs from RabbitMQ here:

- a class or method that does not exist: RabbitMQ's reader dies and the socket is closed without a
  word; here it is an error like that of any other method that is not expected there;
- basic.deliver, basic.return and basic.get-ok from a client, and basic.publish on a channel that is
  not open: RabbitMQ first waits for the content, then sends the same close;
- basic.cancel-ok: RabbitMQ 4 takes it as the answer to a cancel notification, 3.10.8 refused it;
- content frames on a channel that was told to close: RabbitMQ takes them only after a publish; here
  a channel may have been closed between a publish and its content, so they are always dropped.
"""

from __future__ import annotations

import struct
from typing import Final

from tests.compat import wire

ARGUMENTS: Final[dict[str, dict[str, object]]] = {
    "connection.start-ok": {
        "mechanism": "PLAIN",
        "response": b"\x00guest\x00guest",
        "locale": "en_US",
    },
    "connection.tune-ok": {"channel_max": 2047, "frame_max": 131072},
    "connection.open": {"virtual_host": "/"},
    "connection.close": {"reply_code": 200, "reply_text": "bye"},
    "connection.update-secret": {"new_secret": "x", "reason": "renewed"},
    "channel.flow": {"active": True},
    "channel.flow-ok": {"active": True},
    "channel.close": {"reply_code": 200, "reply_text": "bye"},
    "access.request": {"realm": "/data", "active": True},
    "exchange.declare": {"exchange": "x", "type": "direct"},
    "exchange.delete": {"exchange": "gone"},
    "exchange.bind": {"destination": "x", "source": "amq.direct", "routing_key": "k"},
    "exchange.unbind": {"destination": "x", "source": "amq.direct", "routing_key": "k"},
    "queue.declare": {"queue": "q"},
    "queue.bind": {"queue": "q", "exchange": "amq.direct", "routing_key": "k"},
    "queue.unbind": {"queue": "q", "exchange": "amq.direct", "routing_key": "k"},
    "queue.purge": {"queue": "q"},
    "queue.delete": {"queue": "gone"},
    "basic.qos": {"prefetch_count": 10},
    "basic.consume": {"queue": "q", "consumer_tag": "t"},
    "basic.cancel": {"consumer_tag": "t"},
    "basic.cancel-ok": {"consumer_tag": "t"},
    "basic.publish": {"routing_key": "q"},
    "basic.get": {"queue": "q"},
    "basic.ack": {"delivery_tag": 1},
    "basic.reject": {"delivery_tag": 1},
    "basic.nack": {"delivery_tag": 1},
    "basic.recover": {"requeue": True},
    "basic.recover-async": {"requeue": True},
}

METHODS: Final = {name: wire.method(name, ARGUMENTS.get(name, {})) for name in wire.METHODS}

# All inputs by name: frame type and payload.
INPUTS: Final[dict[str, tuple[int, bytes]]] = {
    **{name: (wire.METHOD, payload) for name, payload in METHODS.items()},
    "unknown class": (wire.METHOD, struct.pack("!HH", 77, 1)),
    "unknown method": (wire.METHOD, struct.pack("!HH", 50, 99)),
    "method without ids": (wire.METHOD, b""),
    "method with half of its ids": (wire.METHOD, b"\x00\x32"),
    "header": (wire.HEADER, wire.header(3, {})),
    "header of size 0": (wire.HEADER, wire.header(0, {})),
    "body": (wire.BODY, b"abc"),
    "empty body": (wire.BODY, b""),
    "heartbeat": (wire.HEARTBEAT, b""),
    "heartbeat with payload": (wire.HEARTBEAT, b"x"),
    "unknown frame": (9, b""),
}


def _table(text: str, base: dict[str, str] | None = None) -> dict[str, str]:
    """Inputs and outcomes, two spaces or more between them."""
    rows = dict(base or {})
    for line in text.strip().splitlines():
        name, _, outcome = line.strip().partition("  ")
        rows[name] = outcome.strip()
    return rows


_HANDSHAKE: Final = _table(
    """
    *            hang up later
    heartbeat    nothing
    """
)

_OPEN_CONNECTION: Final = _table(
    """
    *                              connection 504
    method without ids             connection 501 0.0
    method with half of its ids    connection 501 0.0
    header                         connection 505 0.0
    header of size 0               connection 505 0.0
    body                           connection 505 0.0
    empty body                     connection 505 0.0
    heartbeat                      nothing
    heartbeat with payload         connection 501 0.0
    unknown frame                  connection 501 0.0
    """
)

CONNECTION: Final[dict[str, dict[str, str]]] = {
    "awaiting header": {"*": "protocol header, hang up"},
    "starting": _HANDSHAKE | {"connection.start-ok": "connection.tune"},
    "tuning": _HANDSHAKE | {"connection.tune-ok": "nothing"},
    "opening": _OPEN_CONNECTION | {"connection.open": "connection.open-ok"},
    "running": _table(
        """
        connection.close            connection.close-ok, hang up
        connection.update-secret    connection.update-secret-ok
        """,
        _OPEN_CONNECTION,
    ),
    "closing": _table(
        """
        *                      nothing
        connection.close       connection.close-ok, hang up
        connection.close-ok    hang up
        """
    ),
    "closed": {"*": "nothing"},
}

_BAD_FRAMES: Final = _table(
    """
    method without ids             connection 501 0.0
    method with half of its ids    connection 501 0.0
    heartbeat                      connection 505 0.0
    heartbeat with payload         connection 501 0.0
    unknown frame                  connection 501 0.0
    """
)

_NO_CONTENT: Final = _table(
    """
    header              connection 505 0.0
    header of size 0    connection 505 0.0
    body                connection 505 0.0
    empty body          connection 505 0.0
    """,
    _BAD_FRAMES,
)

_NOT_OPEN: Final = _NO_CONTENT | {"*": "connection 504", "channel.open": "channel.open-ok"}

_OPEN: Final = _table(
    """
    *                      connection 503
    channel.open           connection 504
    channel.flow           channel.flow-ok
    channel.close          channel.close-ok
    access.request         access.request-ok
    exchange.declare       exchange.declare-ok
    exchange.delete        exchange.delete-ok
    exchange.bind          exchange.bind-ok
    exchange.unbind        exchange.unbind-ok
    queue.declare          queue.declare-ok
    queue.bind             queue.bind-ok
    queue.unbind           queue.unbind-ok
    queue.purge            queue.purge-ok
    queue.delete           queue.delete-ok
    basic.qos              basic.qos-ok
    basic.consume          basic.consume-ok
    basic.cancel           basic.cancel-ok
    basic.cancel-ok        nothing
    basic.publish          nothing
    basic.get              basic.get-empty
    basic.ack              channel 406
    basic.reject           channel 406
    basic.nack             channel 406
    basic.recover          basic.recover-ok
    basic.recover-async    nothing
    confirm.select         confirm.select-ok
    tx.select              tx.select-ok
    tx.commit              channel 406
    tx.rollback            channel 406
    """,
    _NO_CONTENT,
)

CHANNEL: Final[dict[str, dict[str, str]]] = {
    "not open": _NOT_OPEN,
    "open": _OPEN,
    "expecting header": _table(
        """
        *                   connection 505 60.40
        header              nothing
        header of size 0    nothing
        """,
        _BAD_FRAMES,
    ),
    "expecting body": _table(
        """
        *             connection 505 60.40
        body          nothing
        empty body    nothing
        """,
        _BAD_FRAMES,
    ),
    "closing after an error": _table(
        """
        *                nothing
        channel.open     connection 504
        channel.close    channel.close-ok
        """,
        _BAD_FRAMES,
    ),
    "in confirm mode": _OPEN | {"tx.select": "channel 406"},
    "in tx mode": _table(
        """
        confirm.select    channel 406
        tx.commit         tx.commit-ok
        tx.rollback       tx.rollback-ok
        """,
        _OPEN,
    ),
    "closed": _NOT_OPEN,
}


def outcome(table: dict[str, str], name: str) -> str:
    return table.get(name, table["*"])


def ids(name: str) -> str:
    """Class and method of an input, as in `50.10`."""
    return "{}.{}".format(*struct.unpack_from("!HH", INPUTS[name][1]))
