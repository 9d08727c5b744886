"""The columns of messages as Spark types, and the check of a caller's schema.

Spark does not prune the columns of a Python source. A caller who passes a schema with some of the
columns gets these columns, in that order, and the broker reads no others.
"""

from typing import Final

from pyspark.sql.types import StructType

from pyspark_leveret.errors import OptionError

_DEATH: Final = (
    "struct<queue:string,reason:string,count:bigint,exchange:string,routing_keys:array<string>,"
    "time:timestamp,original_expiration:string>"
)
TYPES: Final = {
    "stream": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "broker_id": "bigint",
    "exchange": "string",
    "routing_key": "string",
    "content_type": "string",
    "content_encoding": "string",
    "headers": "map<string,string>",
    "delivery_mode": "int",
    "priority": "int",
    "correlation_id": "string",
    "reply_to": "string",
    "expiration": "string",
    "message_id": "string",
    "message_timestamp": "timestamp",
    "type": "string",
    "user_id": "string",
    "app_id": "string",
    "x_death": f"array<{_DEATH}>",
    "properties": "binary",
    "body": "binary",
}
DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())


def require_columns(schema: StructType) -> list[str]:
    """Return the columns of a caller's schema; raise OptionError if one is not ours."""
    for field in schema.fields:
        known = TYPES.get(field.name)
        if known is None:
            raise OptionError(f"no column '{field.name}': there are {', '.join(TYPES)}")
        given = field.dataType.simpleString()
        if given != known:
            raise OptionError(f"the column '{field.name}' is of type {known}, not {given}")
    return [field.name for field in schema.fields]
