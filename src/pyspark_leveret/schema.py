"""The columns of messages as Spark types, and the check of a caller's schema.

Spark does not prune the columns of a Python source. A caller who names some of the columns, in the
option `columns` or by a schema, gets these columns, in that order, and the broker reads no others.
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


def ddl_of(names: str | None) -> str:
    """Return the schema of the columns with these names, separated by commas; None: of all."""
    wanted = list(TYPES) if names is None else [name.strip() for name in names.split(",")]
    for number, name in enumerate(wanted):
        _require_known(name)
        if name in wanted[:number]:
            raise OptionError(f"'columns' names '{name}' twice")
    return ", ".join(f"`{name}` {TYPES[name]}" for name in wanted)


def _require_known(name: str) -> None:
    if name not in TYPES:
        raise OptionError(f"no column '{name}': there are {', '.join(TYPES)}")


DDL: Final = ddl_of(None)


def require_columns(schema: StructType) -> list[str]:
    """Return the columns of a caller's schema; raise OptionError if one is not ours."""
    for field in schema.fields:
        _require_known(field.name)
        given, known = field.dataType.simpleString(), TYPES[field.name]
        if given != known:
            raise OptionError(f"the column '{field.name}' is of type {known}, not {given}")
    return [field.name for field in schema.fields]
