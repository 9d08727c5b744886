"""Messages in JSON: their properties, their payload, and RabbitMQ's form of a message."""

from base64 import b64encode

import msgspec

from leveret.http.framework.names import printable
from leveret.wire.properties import Properties
from leveret.wire.tables import plain_table


class GotMessage(msgspec.Struct):
    """One message, in the form of RabbitMQ's `get`."""

    payload_bytes: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int  # ready messages behind this one
    properties: dict[str, object]
    payload: str
    payload_encoding: str  # "string" or "base64"


def encode_payload(body: bytes, is_binary: bool) -> tuple[str, str]:
    """Return a body for JSON and its encoding: "string" if it is UTF-8, else "base64".

    `is_binary` asks for base64 in any case.
    """
    if not is_binary:
        try:
            return body.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass
    return b64encode(body).decode(), "base64"


def payload_start(body: bytes, size: int, is_binary: bool) -> tuple[str, str]:
    """Return the first bytes of a body like `encode_payload`. A text that is cut stays a text."""
    start, encoding = encode_payload(body[:size], is_binary)
    if is_binary or encoding == "string" or size >= len(body):
        return start, encoding
    end = size
    while end > 0 and body[end] & 0xC0 == 0x80 and size - end < 3:  # inside a character of UTF-8
        end -= 1
    text, shorter = encode_payload(body[:end], False)
    return (text, shorter) if shorter == "string" else (start, encoding)


def property_values(properties: Properties) -> dict[str, object]:
    """Return the properties that are set, by RabbitMQ's names."""
    found = {
        name: printable(value) if isinstance(value, str) else value
        for name, value in properties.values_by_name().items()
    }
    if properties.headers is not None:
        found["headers"] = plain_table(properties.headers)
    return found
