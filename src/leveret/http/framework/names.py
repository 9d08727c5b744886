"""Convert names and arguments between JSON and AMQP.

Names in AMQP are bytes. Bytes that are not UTF-8 become U+FFFD in JSON. Values from JSON must fit
the fields of AMQP: names have at most 255 bytes, numbers at most 64 bits.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from starlette.exceptions import HTTPException

from leveret.wire.tables import NAME_BYTES_MAX, Table, encode_table, table_of

# RabbitMQ: rabbitmqadmin sends flags and numbers as text.
Flag = bool | Literal["true", "false"]

ARGUMENTS_BYTES_MAX: Final = 65_536


def printable(text: str) -> str:
    """Return a name as text for JSON; bytes that are not UTF-8 become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_set(flag: Flag) -> bool:
    return flag is True or flag == "true"


def require_short(what: str, text: str) -> str:
    """Return the text. Answer 400 if it is too long for a name in AMQP."""
    if len(text.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise HTTPException(400, f"{what} has more than {NAME_BYTES_MAX} bytes")
    return text


def arguments_of(values: Mapping[str, Any]) -> Table:
    """Return a table of arguments. Answer 400 if AMQP cannot encode one of them."""
    try:
        table = table_of(values)
        size = len(encode_table(table))
    except (ValueError, OverflowError, RecursionError, UnicodeEncodeError) as fault:
        raise HTTPException(400, f"arguments: {fault}") from None
    if size > ARGUMENTS_BYTES_MAX:
        raise HTTPException(400, f"arguments have more than {ARGUMENTS_BYTES_MAX} bytes")
    return table
