"""The columns of messages as Arrow types.

Spark reads these types without conversion: no large, view or dictionary types; times in
microseconds of UTC. All columns are nullable except the first four and the body.
"""

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", "UTC")
HEADERS: Final = pa.map_(pa.string(), pa.string())
DEATHS: Final = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                ("queue", pa.string()),
                ("reason", pa.string()),
                ("count", pa.int64()),
                ("exchange", pa.string()),
                ("routing_keys", pa.list_(pa.field("element", pa.string()))),
                ("time", TIME),
                ("original_expiration", pa.string()),
            ]
        ),
    )
)
TYPES: Final = {
    "stream": pa.string(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "broker_id": pa.int64(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "content_type": pa.string(),
    "content_encoding": pa.string(),
    "headers": HEADERS,
    "delivery_mode": pa.int32(),
    "priority": pa.int32(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "expiration": pa.string(),
    "message_id": pa.string(),
    "message_timestamp": TIME,
    "type": pa.string(),
    "user_id": pa.string(),
    "app_id": pa.string(),
    "x_death": DEATHS,
    "properties": pa.binary(),
    "body": pa.binary(),
}


def schema_of(columns: list[str]) -> pa.Schema:
    """Return the schema of some columns, in the requested order."""
    return pa.schema([(name, TYPES[name]) for name in columns])
