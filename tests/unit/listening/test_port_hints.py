"""A client of another protocol is told which port it should use."""

import pytest

from leveret.config.settings import Settings
from leveret.listening import AMQP, AMQPS, HTTP, HTTPS, PortHints

PORTS = PortHints(Settings(amqp_port=1, http_port=2, amqps_port=3, https_port=4))
PLAIN_PORTS = PortHints(Settings(amqp_port=1, http_port=2))
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01"
GET = b"GET / HTTP/1.1\r\n"
HEADER = b"AMQP\x00\x00\x09\x01"
REDIS = b"*1\r\n$4\r\nPING\r\n"
POSTGRES = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
MQTT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c"


@pytest.mark.parametrize(
    ("service", "first", "reason"),
    [
        (AMQP, GET, "HTTP on amqp_port 1: connect it to http_port 2"),
        (AMQP, HELLO, "TLS on amqp_port 1: connect it to amqps_port 3"),
        (AMQP, REDIS, "Redis on amqp_port 1 of Leveret: give it the address of a server for Redis"),
        (AMQP, b"AMQP\x03\x01\x00\x00", "another version of AMQP: use AMQP 0-9-1"),
        (AMQPS, GET, "HTTP on amqps_port 3: connect it to https_port 4"),
        (HTTP, HEADER, "AMQP on http_port 2: connect it to amqp_port 1"),
        (HTTP, HELLO, "TLS on http_port 2: connect it to https_port 4"),
        (HTTPS, HEADER, "AMQP on https_port 4: connect it to amqps_port 3"),
        (
            HTTP,
            POSTGRES,
            "PostgreSQL on http_port 2 of Leveret: give it the address of a server for PostgreSQL",
        ),
        (HTTP, MQTT, "MQTT on http_port 2 of Leveret: give it the address of a server for MQTT"),
    ],
)
def test_a_client_of_another_protocol_is_sent_to_its_port(
    service: str, first: bytes, reason: str
) -> None:
    found = PORTS.maybe_refusal(service, first)
    assert found is not None
    assert found.reason == f"the client speaks {reason}"


@pytest.mark.parametrize(
    ("service", "first", "reason"),
    [
        (
            HTTPS,
            GET,
            "without TLS on https_port 4: turn TLS on in the client, or connect it to http",
        ),
        (AMQPS, HEADER, "AMQP without TLS on amqps_port 3: turn TLS on in the client, or connect"),
        (HTTPS, HEADER, "the client speaks AMQP on https_port 4: connect it to amqp_port 1"),
        (AMQPS, b"nobody knows", "the client does not speak TLS on amqps_port 3"),
    ],
)
def test_a_client_without_tls_is_told(service: str, first: bytes, reason: str) -> None:
    assert reason in PORTS.without_tls(service, first).reason


@pytest.mark.parametrize(("service", "port"), [(AMQP, "amqp_port 1"), (HTTP, "http_port 2")])
def test_without_a_port_for_tls_the_options_for_one_are_named(service: str, port: str) -> None:
    found = PLAIN_PORTS.maybe_refusal(service, HELLO)
    assert found is not None
    assert found.reason == (
        f"the client speaks TLS on {port}: turn TLS off in the client, or set {service}s_port and"
        " tls_cert"
    )


@pytest.mark.parametrize(
    ("service", "first"), [(HTTP, b"GET /%00"), (HTTPS, GET), (AMQP, b""), (HTTP, b"hello\r\n")]
)
def test_the_right_protocol_and_unknown_ones_have_no_hint(service: str, first: bytes) -> None:
    assert PORTS.maybe_refusal(service, first) is None


def test_a_port_that_was_picked_is_named_by_its_option() -> None:
    found = PortHints(Settings(amqp_port=0, http_port=0)).maybe_refusal(AMQP, GET)
    assert found is not None
    assert found.reason == "the client speaks HTTP on amqp_port: connect it to http_port"


def test_answers_are_in_the_protocol_of_the_client() -> None:
    http = PORTS.maybe_refusal(AMQP, GET)
    redis = PORTS.maybe_refusal(HTTP, REDIS)
    assert http is not None
    assert redis is not None
    head, _, body = http.answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    assert body == f"{http.reason}\n".encode()
    assert redis.answer == f"-ERR {redis.reason}\r\n".encode()
