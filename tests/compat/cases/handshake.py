"""Connecting: protocol headers, login, tuning, opening, and what a broken handshake gets.

An error before the connection is open is answered by a closed socket after a pause; how long the
pause is, is not compared.
"""

from __future__ import annotations

from typing import Final, cast

from tests.compat import wire
from tests.compat.case import Script, Topic
from tests.compat.client import Closed, Connection, Event, Handshake, Method, is_method
from tests.compat.describe import code, show
from tests.compat.stage import Stage

topic = Topic("handshake")

_PAUSE_S: Final = 3.0
_TIMEOUT_S: Final = 10.0
_CUT_S: Final = 3.0  # after which a client with a heartbeat of 1 s is cut


def start(event: Event) -> str:
    """connection.start in short."""
    if isinstance(event, Method) and event.name == "connection.start":
        fields = event.fields
        return f"connection.start {fields['version_major']}-{fields['version_minor']}"
    return show(event)


def header(data: bytes) -> Script:
    """Sends a protocol header; shows the first answer, and the end where it is not a start."""

    def script(t: Stage) -> list[str]:
        connection = t.raw()
        answer = connection.start(data)
        if is_method(answer, "connection.start"):
            return [start(answer)]
        connection.await_closed()
        return [show(answer), "socket closed"]

    return script


_HEADERS: Final = (
    ("0-0-9-1", b"AMQP\x00\x00\x09\x01", ["connection.start 0-9"]),
    ("1-1-0-9", b"AMQP\x01\x01\x00\x09", ["connection.start 0-9"]),
    ("0-0-9-0", b"AMQP\x00\x00\x09\x00", ["protocol header 0 0 9 1", "socket closed"]),
    ("0-1-0-0", b"AMQP\x00\x01\x00\x00", ["protocol header 0 0 9 1", "socket closed"]),
    ("3-1-0-0", b"AMQP\x03\x01\x00\x00", ["protocol header 0 0 9 1", "socket closed"]),
    ("0-0-10-0", b"AMQP\x00\x00\x0a\x00", ["protocol header 0 0 9 1", "socket closed"]),
    ("ssh", b"SSH-2.0-OpenSSH\r\n", ["protocol header 0 0 9 1", "socket closed"]),
    ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01", ["protocol header 0 0 9 1", "socket closed"]),
)
for _name, _data, _answer in _HEADERS:
    topic.add(f"header-{_name}", f"protocol header {_data!r}", header(_data), _answer)

topic.add(
    "header-1-1-8-0",
    "the protocol header of AMQP 0-8",
    header(b"AMQP\x01\x01\x08\x00"),
    ["protocol header 0 0 9 1", "socket closed"],
    rabbitmq=["connection.start 8-0"],
    difference="amqp-0-8",
)


@topic.case(
    "start-fields", "mechanisms and locales that the server offers", ["AMQPLAIN PLAIN", "en_US"]
)
def _(t: Stage) -> list[str]:
    event = t.raw().start()
    assert isinstance(event, Method)
    mechanisms = cast(bytes, event.fields["mechanisms"]).decode().split()
    return [" ".join(sorted(mechanisms)), cast(bytes, event.fields["locales"]).decode()]


@topic.case(
    "capabilities",
    "the capabilities that the server announces",
    [
        "authentication_failure_close True",
        "basic.nack True",
        "connection.blocked True",
        "consumer_cancel_notify True",
        "consumer_priorities True",
        "direct_reply_to True",
        "exchange_exchange_bindings True",
        "per_consumer_qos True",
        "publisher_confirms True",
    ],
)
def _(t: Stage) -> list[str]:
    connection = t.connect()
    table = connection.server_properties["capabilities"].value
    return sorted(f"{key} {item.value}" for key, item in cast(wire.Table, table).items())


@topic.case(
    "server-properties",
    "the names of the server properties",
    "capabilities cluster_name copyright information platform product version",
)
def _(t: Stage) -> str:
    return " ".join(sorted(t.connect().server_properties))


@topic.case(
    "tune",
    "what the server proposes to tune",
    "connection.tune channel_max=2047 frame_max=131072 heartbeat=60",
)
def _(t: Stage) -> str:
    connection = t.raw()
    connection.start()
    connection.start_ok(Handshake())
    return show(connection.receive(0))


def connected(options: Handshake) -> Script:
    """Connects with options; shows the last answer."""

    def script(t: Stage) -> str:
        return show(t.raw().handshake(options))

    return script


_NO_CLOSE: Final = {"authentication_failure_close": False}

topic.add("plain", "login by PLAIN", connected(Handshake()), "connection.open-ok known_hosts=")
topic.add(
    "amqplain",
    "login by AMQPLAIN",
    connected(Handshake(mechanism="AMQPLAIN")),
    "connection.open-ok known_hosts=",
)
topic.add(
    "bad-password",
    "a bad password, from a client that announced authentication_failure_close",
    connected(Handshake(password="wrong")),
    (
        "connection.close 403 ACCESS_REFUSED - Login was refused using authentication "
        "mechanism PLAIN. For details see the broker logfile. (0.0)"
    ),
)
topic.add(
    "bad-password-silent",
    "a bad password, from a client that did not",
    connected(Handshake(password="wrong", capabilities=_NO_CLOSE)),
    "socket closed",
    wait_s=_PAUSE_S,
)
topic.add(
    "bad-user",
    "an unknown user",
    connected(Handshake(user="nobody")),
    (
        "connection.close 403 ACCESS_REFUSED - Login was refused using authentication "
        "mechanism PLAIN. For details see the broker logfile. (0.0)"
    ),
)
topic.add(
    "bad-password-amqplain",
    "a bad password by AMQPLAIN",
    connected(Handshake(mechanism="AMQPLAIN", password="wrong")),
    (
        "connection.close 403 ACCESS_REFUSED - Login was refused using authentication "
        "mechanism AMQPLAIN. For details see the broker logfile. (0.0)"
    ),
)
topic.add(
    "mechanism-unknown",
    "an unknown mechanism",
    connected(Handshake(mechanism="NOPE")),
    "socket closed",
    wait_s=_PAUSE_S,
)
topic.add(
    "response-malformed",
    "a PLAIN response without its separators",
    connected(Handshake(response=b"guest")),
    "socket closed",
    wait_s=_PAUSE_S,
)
topic.add(
    "vhost-missing",
    "a missing vhost",
    connected(Handshake(virtual_host="nope")),
    "connection.close 530 NOT_ALLOWED - vhost nope not found (10.40)",
)
topic.add(
    "no-capabilities",
    "a client without capabilities",
    connected(Handshake(capabilities={})),
    "connection.open-ok known_hosts=",
)

_TUNES: Final[tuple[tuple[str, Handshake], ...]] = (
    ("frame-max-1024", Handshake(frame_max=1024)),
    ("frame-max-4095", Handshake(frame_max=4095)),
    ("frame-max-above", Handshake(frame_max=131073)),
    ("channel-max-above", Handshake(channel_max=2048)),
    ("both-zero", Handshake(channel_max=0, frame_max=0)),
    ("channel-max-zero", Handshake(channel_max=0)),
    ("frame-max-zero", Handshake(frame_max=0)),
)
for _name, _tune in _TUNES:
    topic.add(
        f"tune-{_name}",
        f"tune-ok refused: {_name.replace('-', ' ')}",
        connected(_tune),
        "socket closed",
        wait_s=_PAUSE_S,
    )
for _name, _tune in (
    ("heartbeat-0", Handshake(heartbeat_s=0)),
    ("heartbeat-600", Handshake(heartbeat_s=600)),
    ("frame-max-4096", Handshake(frame_max=4096)),
    ("channel-max-1", Handshake(channel_max=1)),
):
    topic.add(
        f"tune-{_name}",
        f"tune-ok accepted: {_name.replace('-', ' ')}",
        connected(_tune),
        "connection.open-ok known_hosts=",
    )


@topic.case(
    "open-before-start-ok", "connection.open before start-ok", "socket closed", wait_s=_PAUSE_S
)
def _(t: Stage) -> str:
    connection = t.raw()
    connection.start()
    connection.send(0, "connection.open", virtual_host="/")
    return show(connection.receive(0))


@topic.case(
    "channel-before-open",
    "channel.open before connection.open",
    "connection.close 505 UNEXPECTED_FRAME",
    wait_s=_PAUSE_S,
)
def _(t: Stage) -> str:
    connection = _tuned(t)
    connection.send(1, "channel.open")
    return code(connection.receive(1))


@topic.case(
    "open-vhost-twice",
    "connection.open on an open connection",
    ("connection.close 504 CHANNEL_ERROR - unexpected method in connection state running (10.40)"),
)
def _(t: Stage) -> str:
    connection = t.connect()
    connection.send(0, "connection.open", virtual_host="/")
    return show(connection.receive(0))


@topic.case(
    "start-ok-again",
    "start-ok on an open connection",
    ("connection.close 504 CHANNEL_ERROR - unexpected method in connection state running (10.11)"),
)
def _(t: Stage) -> str:
    connection = t.connect()
    connection.start_ok(Handshake())
    return show(connection.receive(0))


@topic.case(
    "close-before-open",
    "connection.close before connection.open",
    ("connection.close 504 CHANNEL_ERROR - unexpected method in connection state opening (10.50)"),
    wait_s=_PAUSE_S,
)
def _(t: Stage) -> str:
    connection = _tuned(t)
    connection.send(0, "connection.close", reply_code=200)
    return show(connection.receive(0))


@topic.case(
    "large-frame-before-login",
    "a frame over 8192 bytes before login",
    "socket closed",
    wait_s=_PAUSE_S,
)
def _(t: Stage) -> str:
    connection = t.raw()
    connection.start()
    connection.send(0, "connection.start-ok", response=bytes(20_000), mechanism="PLAIN")
    return show(connection.receive(0))


def _tuned(t: Stage) -> Connection:
    connection = t.raw()
    connection.start()
    connection.start_ok(Handshake())
    connection.tune_ok(t.require(connection.receive(0)), Handshake())
    return connection


@topic.case("update-secret", "connection.update-secret with PLAIN", "connection.update-secret-ok")
def _(t: Stage) -> str:
    connection = t.connect()
    connection.send(0, "connection.update-secret", new_secret="guest", reason="renewed")
    return show(connection.receive(0))


@topic.case("close", "connection.close by the client", "connection.close-ok")
def _(t: Stage) -> str:
    return show(t.connect().close())


@topic.case(
    "not-blocked",
    "nothing is said about blocking when a connection opens",
    "[] connection.close-ok",
)
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel()
    t.put(channel, "", t.queue(channel))
    inbox = channel.sync()
    connection.send(0, "connection.close", reply_code=200)
    return f"{inbox} {show(connection.receive(0))}"


def _closed_after(connection: Connection) -> str:
    event = connection.await_closed()
    return f"socket closed after {_at_least(event.after_s, _TIMEOUT_S)}"


def _at_least(seen_s: float, due_s: float) -> str:
    """A time. A busy machine is late, never early; tests/protocol checks the exact times."""
    return f"{due_s:g} s" if seen_s >= due_s - 0.5 else f"{seen_s:.1f} s"


@topic.case(
    "silent", "a client that says nothing at all", "socket closed after 10 s", wait_s=_TIMEOUT_S
)
def _(t: Stage) -> str:
    return _closed_after(t.raw())


@topic.case(
    "silent-after-header",
    "a client silent after its header",
    "socket closed after 10 s",
    wait_s=_TIMEOUT_S,
)
def _(t: Stage) -> str:
    connection = t.raw()
    connection.start()
    return _closed_after(connection)


@topic.case(
    "silent-before-open",
    "a client silent before connection.open",
    "socket closed after 10 s",
    wait_s=_TIMEOUT_S,
)
def _(t: Stage) -> str:
    return _closed_after(_tuned(t))


@topic.case(
    "header-cut",
    "half a protocol header, then silence",
    "socket closed after 10 s",
    wait_s=_TIMEOUT_S,
)
def _(t: Stage) -> str:
    connection = t.raw()
    connection.send_bytes(b"AMQP")
    return _closed_after(connection)


def missed(heartbeat_s: int) -> Script:
    """A client that stays silent with heartbeats on; a beat comes at most every half interval."""

    def script(t: Stage) -> str:
        connection = t.connect(Handshake(heartbeat_s=heartbeat_s))
        event = connection.receive(0)
        assert isinstance(event, Closed), show(event)
        count = len(connection.heartbeats_at_s)
        most = round(event.after_s / (heartbeat_s / 2))
        beats = "beats" if 1 <= count <= most else f"{count} beats in {event.after_s:.1f} s"
        return f"{beats}, {show(event)} after {_at_least(event.after_s, 3 * heartbeat_s)}"

    return script


for _heartbeat_s in (1, 2):
    topic.add(
        f"heartbeat-missed-{_heartbeat_s}",
        f"heartbeat {_heartbeat_s} s, client silent: cut after three, without connection.close",
        missed(_heartbeat_s),
        f"beats, socket closed after {3 * _heartbeat_s} s",
        wait_s=3.0 * _heartbeat_s,
    )


@topic.case(
    "heartbeat-kept",
    "heartbeat 1 s, kept alive by the client's beats",
    "alive",
    wait_s=3.6,
    premise_s=_CUT_S,
)
def _(t: Stage) -> str:
    connection = t.connect(Handshake(heartbeat_s=1))
    channel = connection.channel()
    for _ in range(8):
        connection.send_frame(wire.HEARTBEAT, 0, b"")
        channel.quiet(450)
    return "closed" if connection.ended else "alive" + "".join(map(show, channel.sync()))


@topic.case(
    "heartbeat-traffic",
    "heartbeat 1 s, kept alive by other frames",
    "alive",
    wait_s=3.6,
    premise_s=_CUT_S,
)
def _(t: Stage) -> str:
    connection = t.connect(Handshake(heartbeat_s=1))
    channel = connection.channel()
    for _ in range(8):
        channel.sync()
        channel.quiet(450)
    return "closed" if connection.ended else "alive"


@topic.case(
    "heartbeat-off", "heartbeat 0: none are sent and none are missed", "0 beats", wait_s=1.5
)
def _(t: Stage) -> str:
    connection = t.connect(Handshake(heartbeat_s=0))
    channel = connection.channel()
    channel.quiet(1500)
    channel.sync()
    return f"{len(connection.heartbeats_at_s)} beats"


@topic.case("heartbeat-unasked", "a heartbeat frame with heartbeats off is accepted", "accepted")
def _(t: Stage) -> str:
    channel = t.channel()
    channel.connection.send_frame(wire.HEARTBEAT, 0, b"")
    return "".join(map(show, channel.sync())) or "accepted"
