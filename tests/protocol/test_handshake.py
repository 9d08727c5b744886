"""The handshake: mechanisms, refusals, negotiated limits, and the deadline."""

from __future__ import annotations

from typing import cast

import pytest

from leveret.amqp.connection_base import ConnectionLimits
from leveret.auth.certificates import TlsPeer
from tests.compat import wire
from tests.compat.client import Method, Preamble
from tests.protocol.stage import CAPABILITIES, Peer, Stage, closes, method, start_ok, tune_ok

AMQPLAIN = wire.table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
SILENT = {"product": "x", "capabilities": CAPABILITIES | {"authentication_failure_close": False}}
REFUSED = (
    "connection",
    403,
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}."
    " For details see the broker logfile.",
)


def starting(stage: Stage) -> Peer:
    peer = stage.peer()
    peer.feed(wire.PROTOCOL_HEADER)
    peer.take()
    return peer


def tuning(stage: Stage) -> Peer:
    peer = starting(stage)
    peer.feed(start_ok())
    peer.take()
    return peer


def hangs_up_later(stage: Stage, peer: Peer) -> bool:
    """Return True if the socket is closed after the refusal delay, without a frame before."""
    stage.advance(stage.limits.refusal_ms - 1)
    was_up = not peer.hung_up()
    stage.advance(1)
    return was_up and peer.hung_up() and peer.take() == []


def test_start_offers_both_mechanisms_and_the_capabilities() -> None:
    peer = Stage().peer()
    peer.feed(wire.PROTOCOL_HEADER)
    (start,) = peer.take()
    assert isinstance(start, Method)
    assert start.name == "connection.start"
    assert (start.fields["version_major"], start.fields["version_minor"]) == (0, 9)
    assert start.fields["mechanisms"] == b"PLAIN AMQPLAIN"
    assert start.fields["locales"] == b"en_US"
    properties = cast("dict[str, object]", wire.plain(start.fields["server_properties"]))
    capabilities = cast("dict[str, bool]", properties["capabilities"])
    assert set(capabilities.values()) == {True}
    assert {"basic.nack", "publisher_confirms", "connection.blocked"} <= set(capabilities)


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09"])
def test_protocol_header_may_come_in_pieces(header: bytes) -> None:
    peer = Stage().peer()
    for octet in header[:-1]:
        peer.feed(bytes((octet,)))
        assert peer.take() == []
    peer.feed(header[-1:])
    assert peer.names() == ["connection.start"]


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x00",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"G",
        b"AMQQ",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        bytes(8),
    ],
)
def test_other_protocols_are_told_which_one_is_spoken(header: bytes) -> None:
    peer = Stage().peer()
    peer.feed(header)
    assert peer.take() == [Preamble(wire.PROTOCOL_HEADER)]
    assert peer.hung_up()


@pytest.mark.parametrize(
    ("request_", "start", "end"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 ", b"connect it to http_port\n"),
        (b"*1\r\n$4\r\nPING\r\n", b"-ERR the client speaks Redis ", b"a server for Redis\r\n"),
    ],
)
def test_a_client_of_http_or_redis_is_told_in_its_own_protocol(
    request_: bytes, start: bytes, end: bytes
) -> None:
    peer = Stage().peer()
    peer.feed(request_)
    answer = peer.take_bytes()
    assert answer.startswith(start)
    assert answer.endswith(end)
    assert peer.hung_up()


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\x00guest\x00guest"),
        ("PLAIN", b"ignored\x00guest\x00guest"),
        ("AMQPLAIN", AMQPLAIN),
    ],
)
def test_login_with_plain_or_amqplain_is_answered_with_tune(
    mechanism: str, response: bytes
) -> None:
    stage = Stage()
    peer = starting(stage)
    peer.feed(start_ok(mechanism=mechanism, response=response))
    (tune,) = peer.take()
    assert isinstance(tune, Method)
    assert tune.name == "connection.tune"
    assert tune.fields == {"channel_max": 2047, "frame_max": 131072, "heartbeat": 60}
    peer.feed(tune_ok() + method(0, "connection.open", virtual_host="/"))
    assert peer.names() == ["connection.open-ok"]


BAD = [
    ("PLAIN", b"\x00guest\x00wrong"),
    ("PLAIN", b"\x00nobody\x00guest"),
    ("PLAIN", b"\x00\x00"),
    ("PLAIN", b"\x00gu\xffest\x00guest"),
    ("PLAIN", b"\x00guest\x00guest\xc3"),
    ("AMQPLAIN", wire.table({"LOGIN": "guest", "PASSWORD": "wrong"})[4:]),
    (
        "AMQPLAIN",
        wire.table({"LOGIN": b"\xff", "PASSWORD": ("S", b"\xfe")})[4:].replace(b"x", b"S"),
    ),
]


@pytest.mark.parametrize(("mechanism", "response"), BAD)
def test_bad_credentials_are_told_to_who_asked_for_it(mechanism: str, response: bytes) -> None:
    stage = Stage()
    peer = starting(stage)
    peer.feed(start_ok(mechanism=mechanism, response=response))
    level, code, text = REFUSED
    assert closes(peer.take()) == [(level, code, text.format(mechanism))]
    assert not peer.hung_up()
    peer.feed(method(0, "connection.close-ok"))
    assert peer.hung_up()


@pytest.mark.parametrize(("mechanism", "response"), BAD)
def test_bad_credentials_without_that_capability_are_a_silent_end(
    mechanism: str, response: bytes
) -> None:
    stage = Stage()
    peer = starting(stage)
    peer.feed(start_ok(mechanism=mechanism, response=response, client_properties=SILENT))
    assert hangs_up_later(stage, peer)


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("EXTERNAL", b""),
        ("", b""),
        ("plain", b"\x00guest\x00guest"),
        ("PLAIN", b""),
        ("PLAIN", b"guest\x00guest"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", b"\x05LOGIN"),
        ("AMQPLAIN", b"\x05LOGINS\x7f\xff\xff\xff"),
        ("AMQPLAIN", wire.table({"LOGIN": 5, "PASSWORD": "guest"})[4:]),
        ("AMQPLAIN", wire.table({"LOGIN": "guest"})[4:]),
    ],
)
def test_what_cannot_be_a_login_ends_without_entry(mechanism: str, response: bytes) -> None:
    stage = Stage()
    peer = starting(stage)
    peer.feed(start_ok(mechanism=mechanism, response=response))
    stage.advance(stage.limits.close_ms)
    assert peer.hung_up()
    assert "connection.tune" not in peer.names()


def test_refused_peer_cannot_go_on() -> None:
    stage = Stage()
    peer = starting(stage)
    peer.feed(start_ok(response=b"\x00guest\x00wrong", client_properties=SILENT))
    peer.feed(start_ok() + tune_ok() + method(0, "connection.open", virtual_host="/"))
    assert hangs_up_later(stage, peer)


def test_default_user_may_come_from_loopback_only() -> None:
    stage = Stage()
    peer = starting(stage)
    peer.connection.is_loopback = False
    peer.feed(start_ok())
    assert [close[:2] for close in closes(peer.take())] == [("connection", 403)]


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "is_taken"),
    [
        (2047, 131072, True),
        (1, 4096, True),
        (0, 131072, False),
        (2048, 131072, False),
        (65535, 131072, False),
        (2047, 0, False),
        (2047, 4095, False),
        (2047, 1024, False),
        (2047, 131073, False),
        (2047, 2**32 - 1, False),
    ],
)
def test_limits_must_lie_within_what_was_offered(
    channel_max: int, frame_max: int, is_taken: bool
) -> None:
    stage = Stage()
    peer = tuning(stage)
    peer.feed(tune_ok(channel_max=channel_max, frame_max=frame_max))
    peer.feed(method(0, "connection.open", virtual_host="/"))
    if is_taken:
        assert peer.names() == ["connection.open-ok"]
    else:
        assert hangs_up_later(stage, peer)


@pytest.mark.parametrize("heartbeat_s", [0, 1, 60, 600, 65535])
def test_heartbeat_is_the_peers_choice(heartbeat_s: int) -> None:
    peer = tuning(Stage())
    peer.feed(tune_ok(heartbeat_s=heartbeat_s) + method(0, "connection.open", virtual_host="/"))
    assert peer.names() == ["connection.open-ok"]
    assert peer.connection.heartbeat_s == heartbeat_s


def test_offered_limits_are_settings() -> None:
    limits = ConnectionLimits()
    limits.channel_max, limits.frame_max, limits.heartbeat_s = 10, 8192, 5
    peer = starting(Stage(limits))
    peer.feed(start_ok())
    (tune,) = peer.take()
    assert isinstance(tune, Method)
    assert tune.fields == {"channel_max": 10, "frame_max": 8192, "heartbeat": 5}


def test_unknown_vhost_is_refused_by_a_close() -> None:
    peer = tuning(Stage())
    peer.feed(tune_ok() + method(0, "connection.open", virtual_host="nope"))
    (close,) = peer.take()
    assert closes([close]) == [("connection", 530, "NOT_ALLOWED - vhost nope not found")]
    assert isinstance(close, Method)
    assert (close.fields["class_id"], close.fields["method_id"]) == (10, 40)


def test_vhost_is_where_the_peer_works() -> None:
    stage = Stage()
    stage.broker.add_vhost("other")
    peer = tuning(stage)
    peer.feed(tune_ok() + method(0, "connection.open", virtual_host="other"))
    peer.take()
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="q")
    assert set(stage.broker.vhost("other").queues) == {"q"}
    assert not stage.broker.vhost("/").queues


STEPS = [b"", wire.PROTOCOL_HEADER[:5], wire.PROTOCOL_HEADER, start_ok(), tune_ok()]


@pytest.mark.parametrize("steps", range(1, 6))
def test_handshake_must_be_over_in_time(steps: int) -> None:
    stage = Stage()
    peer = stage.peer()
    said = b"".join(STEPS[:1] if steps == 1 else STEPS[1:2] if steps == 2 else STEPS[2:steps])
    peer.feed(said)
    peer.take()
    stage.advance(stage.limits.handshake_ms - 1)
    assert not peer.hung_up()
    stage.advance(1)
    assert peer.hung_up()
    assert peer.take() == []


def test_handshake_time_is_not_prolonged_by_bytes() -> None:
    stage = Stage()
    peer = starting(stage)
    for octet in start_ok():
        stage.advance(500)
        if peer.hung_up():
            break
        peer.feed(bytes((octet,)))
    assert peer.hung_up()
    assert stage.now_ms - peer.connection.connected_ms == stage.limits.handshake_ms


def test_open_connection_has_no_deadline() -> None:
    stage = Stage()
    peer = stage.opened()
    stage.advance(100 * stage.limits.handshake_ms)
    assert not peer.hung_up()


def test_what_comes_before_login_is_bounded() -> None:
    """Before the login, an incomplete frame holds at most the small frame size."""
    stage = Stage()
    peer = starting(stage)
    peer.feed(b"\x01\x00\x00" + (8192).to_bytes(4, "big"))
    for _ in range(8192):
        peer.feed(b"x")
    peer.feed(b"x" * 100_000)
    held = sum(map(len, peer.connection._chunks))
    assert held <= 8192 + 8


def test_client_properties_are_kept_for_people() -> None:
    peer = tuning(Stage())
    assert peer.connection.client_properties["product"] == "stage"


@pytest.mark.parametrize(
    "properties",
    [{"capabilities": "none"}, {"capabilities": {"basic.nack": "yes"}}, {"capabilities": []}, {}],
)
def test_capabilities_of_another_type_are_none(properties: dict[str, object]) -> None:
    peer = starting(Stage())
    peer.feed(start_ok(client_properties=properties))
    assert peer.names() == ["connection.tune"]
    connection = peer.connection
    assert not connection.wants_blocked_notify
    assert not connection.wants_cancel_notify
    assert not connection.wants_failure_close


def certified(stage: Stage, name: str, *, offers: bool = True) -> Peer:
    """Return a peer with a verified certificate that has received connection.start."""
    peer = stage.peer()
    peer.connection.tls = TlsPeer("TLSv1.3", "a cipher", offers, login_name=name)
    peer.feed(wire.PROTOCOL_HEADER)
    return peer


def test_external_is_offered_where_certificates_are_verified() -> None:
    for offers, mechanisms in ((True, b"PLAIN AMQPLAIN EXTERNAL"), (False, b"PLAIN AMQPLAIN")):
        (start,) = certified(Stage(), "guest", offers=offers).take()
        assert isinstance(start, Method)
        assert start.fields["mechanisms"] == mechanisms


def test_certificate_logs_in_whom_it_names() -> None:
    peer = certified(Stage(), "guest")
    peer.take()
    peer.feed(start_ok(mechanism="EXTERNAL", response=b"ignored"))
    assert peer.names() == ["connection.tune"]


@pytest.mark.parametrize("name", ["", "fox"])
def test_certificate_of_nobody_is_refused(name: str) -> None:
    peer = certified(Stage(), name)
    peer.take()
    peer.feed(start_ok(mechanism="EXTERNAL", response=b"\x00guest\x00guest"))
    code, text = REFUSED[1], REFUSED[2].format("EXTERNAL")
    assert closes(peer.take()) == [("connection", code, text)]


@pytest.mark.parametrize("offers", [None, False])
def test_external_without_a_verified_certificate_is_unknown(offers: bool | None) -> None:
    stage = Stage()
    peer = starting(stage) if offers is None else certified(stage, "guest", offers=offers)
    peer.take()
    peer.feed(start_ok(mechanism="EXTERNAL", response=b"guest"))
    assert hangs_up_later(stage, peer)
