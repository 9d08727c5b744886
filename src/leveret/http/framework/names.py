"""Names and arguments between JSON and AMQP.

AMQP's names are bytes; those that are no UTF-8 are shown as U+FFFD. What comes from JSON must fit
AMQP's fields: names have at most 255 bytes, numbers 64 bits.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from starlette.exceptions import HTTPException

from leveret.wire.tables import NAME_BYTES_MAX, Table, encode_table, table_of

# RabbitMQ: rabbitmqadmin sends flags and numbers as text.
Flag = bool | Literal["true", "false"]

ARGUMENTS_BYTES_MAX: Final = 65_536


def printable(text: str) -> str:
    """A name for JSON."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_set(flag: Flag) -> bool:
    return flag is True or flag == "true"


def require_short(what: str, text: str) -> str:
    """A text that AMQP can carry as a name; 400 where it is too long."""
    if len(text.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise HTTPException(400, f"{what} has more than {NAME_BYTES_MAX} bytes")
    return text


def arguments_of(values: Mapping[str, Any]) -> Table:
    """A table of arguments; 400 where AMQP has no form for one of them."""
    try:
        table = table_of(values)
        size = len(encode_table(table))
    except (ValueError, OverflowError, RecursionError, UnicodeEncodeError) as fault:
        raise HTTPException(400, f"arguments: {fault}") from None
    if size > ARGUMENTS_BYTES_MAX:
        raise HTTPException(400, f"arguments have more than {ARGUMENTS_BYTES_MAX} bytes")
    return table
