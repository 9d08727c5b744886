"""A content header, checked and unpacked once for all messages that share it.

Publishers send the same header again and again, so a front keeps the last `Content` and compares
bytes. Everything that RabbitMQ refuses in a header is refused here, with RabbitMQ's text.
"""

from mypy_extensions import i64

from leveret.engine.arguments.expiration import read_expiration
from leveret.engine.exchanges.delayed import DELAY, delay_ms
from leveret.engine.exchanges.exchange import Headers
from leveret.engine.message import PERSISTENT, Address
from leveret.errors import PreconditionFailedError
from leveret.wire.properties import (
    decode_properties,
    encode_header,
    parse_traits,
)
from leveret.wire.tables import Table, field_of, kind_name


class Content:
    """A content header, with the values that the engine needs."""

    def __init__(self, header: bytes, depth: i64 = 0) -> None:
        traits = parse_traits(header, depth)
        if traits.delivery_mode > 2 or traits.delivery_mode == 0:
            raise PreconditionFailedError(
                f"invalid message: {{delivery_mode_unknown,{traits.delivery_mode}}}"
            )
        self.header = header
        self.body_size: i64 = traits.body_size
        self.flags: i64 = PERSISTENT if traits.persistent else 0
        self.priority: i64 = traits.priority
        self.ttl_ms: i64 = -1 if traits.expiration is None else read_expiration(traits.expiration)
        self.reply_to = traits.reply_to
        self.user_id = traits.user_id
        self.headers = Headers(header, traits.headers_at, traits.headers_end)
        self.extra_keys: list[str] = []  # routing keys of CC, then of BCC
        self.shown_keys: i64 = 0  # how many of `extra_keys` are of CC
        self.delay_ms: i64 = 0
        self._delayed_header = b""  # made once: copies with the same header share one record
        if traits.has_cc or traits.has_bcc:
            self._read_copies()
        if traits.has_delay:
            self.delay_ms = delay_ms(self.headers)

    def _read_copies(self) -> None:
        table = self.headers.table()
        self.extra_keys = _keys(table, "CC")
        self.shown_keys = len(self.extra_keys)
        self.extra_keys.extend(_keys(table, "BCC"))
        if "BCC" in table:
            properties = decode_properties(self.header)
            assert properties.headers is not None
            del properties.headers["BCC"]
            self.header = encode_header(properties, self.body_size)

    def address(self, exchange: str, routing_key: str) -> Address:
        """Return an address for this message alone, with its keys of CC and BCC."""
        address = Address(exchange, routing_key)
        address.keys.extend(self.extra_keys)
        address.shown = 1 + self.shown_keys
        return address

    def after_delay(self) -> bytes:
        """Return the header of a message that has been delayed: `x-delay` is negative.

        RabbitMQ's delayed exchange does the same. The sign also keeps a second delayed exchange or
        queue on the way from delaying the message again.
        """
        if not self._delayed_header:
            properties = decode_properties(self.header)
            assert properties.headers is not None
            properties.headers[DELAY] = field_of(-self.delay_ms)
            self._delayed_header = encode_header(properties, self.body_size)
        return self._delayed_header


def _keys(table: Table, name: str) -> list[str]:
    field = table.get(name)
    if field is None:
        return []
    if not isinstance(field.value, list):
        raise PreconditionFailedError(
            f'invalid message: {{unacceptable_type_in_header,"{name}",{kind_name(field.kind)}}}'
        )
    return [item.value for item in field.value if isinstance(item.value, str)]
