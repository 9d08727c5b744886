"""Arguments of queues, exchanges, bindings and consumers as the broker keeps them: encoded.

A decoded table takes up to a hundred bytes of memory for each byte that a client sent. For example,
each void in an array is one byte in the frame and an object in memory. So arguments are kept as
bytes, and decoded when they are read. Their size and number are limited, because every answer that
shows them decodes them.
"""

from typing import Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Field, Table, decode_table, encode_table

# Limit for all arguments of one object, encoded. The longest names and texts of known arguments
# together take less than a quarter of it.
ARGUMENT_BYTES_MAX: Final = 16_384
# Limit for the values of one object, including values inside its arrays and tables.
ARGUMENT_VALUES_MAX: Final = 1_000
# The same for a binding of a headers exchange, which keeps each required header decoded and in an
# index: up to 900 bytes each.
HEADER_BINDING_VALUES_MAX: Final = 64

_LENGTH_BYTES: Final = 4  # size of the length field before the entries of a table


def pack(arguments: Table) -> bytes:
    """Return arguments in the form in which they are kept."""
    return encode_table(arguments) if arguments else b""


def unpack(packed: bytes) -> Table:
    """Return the arguments that were packed, as a new table."""
    return decode_table(packed, _LENGTH_BYTES, len(packed)) if packed else {}


def require_modest(what: str, arguments: Table, values_max: int = ARGUMENT_VALUES_MAX) -> None:
    """Raise PreconditionFailedError if these arguments are too many or too large to be kept."""
    if not arguments:
        return
    count = _count_values(arguments)
    if count > values_max:
        raise PreconditionFailedError(
            f"the arguments of {what} have {count} values; at most {values_max} are allowed"
        )
    size = len(encode_table(arguments))
    if size > ARGUMENT_BYTES_MAX:
        raise PreconditionFailedError(
            f"the arguments of {what} have {size} bytes; at most {ARGUMENT_BYTES_MAX} are allowed"
        )


def _count_values(table: Table) -> i64:
    """Count all values. The depth was limited when the table was decoded."""
    count: i64 = 0
    open_fields: list[Field] = list(table.values())
    while open_fields:
        value = open_fields.pop().value
        count += 1
        if isinstance(value, dict):
            open_fields.extend(value.values())
        elif isinstance(value, list):
            open_fields.extend(value)
    return count
