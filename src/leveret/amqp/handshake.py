"""The handshake: start, tune and open, from the server's side.

server: start (versions, properties, mechanisms)    client: start-ok (mechanism, response)
server: tune (channel_max, frame_max, heartbeat)    client: tune-ok
                                                    client: open (vhost)
server: open-ok
"""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.connection_base import ConnectionBase
from leveret.amqp.methods import (
    CONNECTION_CLOSE,
    CONNECTION_OPEN_OK,
    CONNECTION_START,
    CONNECTION_TUNE,
    FRAME_BYTES_MIN,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.reply_codes import ACCESS_REFUSED, CONNECTION_FORCED
from leveret.amqp.writer import MethodWriter
from leveret.auth import ADMINISTRATOR, Credentials, Refusal, User
from leveret.errors import CommandInvalidError, FieldSyntaxError, NotAllowedError
from leveret.wire.tables import Table, decode_peer_table, plain_table, table_of

PROTOCOL_HEADER_0_9: Final = (
    b"AMQP\x01\x01\x00\x09"  # sent by clients of AMQP 0-9; RabbitMQ accepts it
)

MECHANISMS: Final = b"PLAIN AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"  # login by the certificate of the peer

CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


def send_start(connection: ConnectionBase) -> None:
    properties: dict[str, object] = dict(connection.front.server_properties)
    properties["capabilities"] = dict.fromkeys(CAPABILITIES, True)
    method = MethodWriter(CONNECTION_START).octet(0).octet(9).table(table_of(properties))
    mechanisms = MECHANISMS
    if connection.tls is not None and connection.tls.offers_external:
        mechanisms += b" EXTERNAL"
    connection.send(0, method.long_string(mechanisms).long_string(b"en_US"))


def on_start_ok(connection: ConnectionBase, reader: MethodReader) -> None:
    """Start the login. The authenticator calls `on_login`, at once or in a later turn."""
    properties = reader.table()
    mechanism = reader.short_string()
    response = reader.long_string()
    reader.short_string()
    _note_client(connection, properties)
    connection.mechanism = mechanism
    name, password = _credentials(connection, mechanism, response)
    credentials = Credentials(
        name, password, host=connection.host, is_loopback=connection.is_loopback
    )
    connection.credentials = credentials
    connection.front.authenticator.login(credentials, connection.on_login)


def on_login(connection: ConnectionBase, outcome: User | Refusal) -> bool:
    """Offer the limits to the user. If the login is refused, tell the peer and return False."""
    connection.credentials = None
    if isinstance(outcome, Refusal):
        _refuse(connection, outcome)
        return False
    connection.user = outcome
    connection.user_name = outcome.name
    limits = connection.front.limits
    method = MethodWriter(CONNECTION_TUNE).short(limits.channel_max).long(limits.frame_max)
    connection.send(0, method.short(limits.heartbeat_s))
    return True


def _refuse(connection: ConnectionBase, refusal: Refusal) -> None:
    """Tell the peer that its password is wrong, or that it shall try again later."""
    connection.note_end("login refused")
    if not connection.wants_failure_close:
        return
    if refusal.retry_ms > 0:
        text = "CONNECTION_FORCED - too many logins, this one was not checked: try again later"
        connection.last_words = _close(CONNECTION_FORCED, text)
        return
    text = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism "
        f"{connection.mechanism}. For details see the broker logfile."
    )
    connection.send(0, _close(ACCESS_REFUSED, text))


def _close(code: i64, text: str) -> MethodWriter:
    return MethodWriter(CONNECTION_CLOSE).short(code).short_string(text).long(0)


def _note_client(connection: ConnectionBase, properties: Table) -> None:
    connection.client_properties = plain_table(properties)
    connection.client_table = properties
    capabilities = properties.get("capabilities")
    if capabilities is None or not isinstance(capabilities.value, dict):
        return
    granted: Table = capabilities.value
    connection.wants_cancel_notify = _is_true(granted, "consumer_cancel_notify")
    connection.wants_blocked_notify = _is_true(granted, "connection.blocked")
    connection.wants_failure_close = _is_true(granted, "authentication_failure_close")


def _is_true(table: Table, name: str) -> bool:
    field = table.get(name)
    return field is not None and field.value is True


def _credentials(
    connection: ConnectionBase, mechanism: str, response: bytes
) -> tuple[str, str | None]:
    """Return user and password of a SASL response; None as password for a certificate."""
    tls = connection.tls
    if mechanism == EXTERNAL and tls is not None and tls.offers_external:
        return tls.login_name, None
    if mechanism == "PLAIN":
        parts = response.split(b"\x00")
        if len(parts) != 3:
            raise FieldSyntaxError("Invalid PLAIN response")
        return _text(parts[1]), parts[2].decode("utf-8", "surrogateescape")
    if mechanism == "AMQPLAIN":
        table = decode_peer_table(response, 0, len(response))
        name = _login_field(table, "LOGIN").encode("utf-8", "surrogateescape")
        return _text(name), _login_field(table, "PASSWORD")
    raise CommandInvalidError(f"unknown authentication mechanism '{mechanism}'")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _login_field(table: Table, name: str) -> str:
    field = table.get(name)
    if field is None or not isinstance(field.value, str):
        raise FieldSyntaxError(f"AMQPLAIN auth info is missing {name} field")
    return field.value


def on_tune_ok(connection: ConnectionBase, reader: MethodReader) -> None:
    """Adopt the limits that the peer chose. Raise if one is above the offer, or unlimited."""
    channel_max = reader.short()
    frame_max = reader.long()
    heartbeat_s = reader.short()
    limits = connection.front.limits
    if channel_max == 0 or channel_max > limits.channel_max:
        raise FieldSyntaxError(f"negotiated channel_max = {channel_max} is out of bounds")
    if frame_max < FRAME_BYTES_MIN or frame_max > limits.frame_max:
        raise FieldSyntaxError(f"negotiated frame_max = {frame_max} is out of bounds")
    connection.channel_max = channel_max
    connection.frame_max = frame_max
    connection.heartbeat_s = heartbeat_s


def on_open(connection: ConnectionBase, reader: MethodReader) -> None:
    """Open the vhost that the peer asks for."""
    name = reader.short_string()
    user = connection.user
    assert user is not None
    vhost = connection.front.broker.vhosts.get(name)
    if vhost is None:
        raise NotAllowedError(f"vhost {name} not found")
    if not user.may_open(name):
        raise NotAllowedError(f"access to vhost '{name}' refused for user '{user.name}'")
    is_local_administrator = connection.is_loopback and ADMINISTRATOR in user.tags
    connection.front.quotas.open_connection(user.identity, name, is_local_administrator)
    connection.vhost = vhost
    connection.send(0, MethodWriter(CONNECTION_OPEN_OK).short_string(""))
