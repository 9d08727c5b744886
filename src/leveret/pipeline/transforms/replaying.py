"""Messages that are published once more: they say where they came from.

Header `x-replayed-from` is the stream, `x-replayed-offset` the offset, `x-replayed-timestamp` when
the broker took it first, `x-replay-id` the run. Everything else is as it was, with one exception:
the broker takes a `user-id` from nobody but that user, so it becomes `x-replayed-user-id`. Of a
message from a stream of life events the headers of the event are left out.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from leveret.wire.properties import decode_properties, encode_header
from leveret.wire.tables import table_of

REPLAY_KEY = "replay_key"  # the column with deduplication ids
# What a chronicle has added to a message: it tells of the life of another copy.
_OF_EVENTS = ("x-event", "x-queue", "x-broker-id", "x-publish-id", "x-cause-id")


def replayed(frame: DataFrame, replay_id: str) -> DataFrame:
    """What the sink takes, in the order of streams and offsets; one partition keeps it."""
    stamp = f.udf(_stamped, BinaryType(), useArrow=False)  # Arrow would need pandas
    at = f.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")  # in UTC, as sessions are
    header = stamp("properties", "stream", "offset", at, f.lit(replay_id))
    key = f.concat_ws("/", f.lit(replay_id), "stream", f.col("offset").cast("string"))
    ordered = frame.repartition(1).sortWithinPartitions("timestamp", "stream", "offset")
    return ordered.select(
        "exchange", "routing_key", header.alias("properties"), "body", key.alias(REPLAY_KEY)
    )


def _stamped(header: bytes, stream: str, offset: int, at: str, replay_id: str) -> bytes:
    """A content header with where its message came from."""
    properties = decode_properties(bytes(header))
    headers = dict(properties.headers or {})
    if "x-event" in headers:
        for name in _OF_EVENTS:
            headers.pop(name, None)
    origin: dict[str, object] = {
        "x-replayed-from": stream,
        "x-replayed-offset": offset,
        "x-replayed-timestamp": at,
        "x-replay-id": replay_id,
    }
    if properties.user_id is not None:
        origin["x-replayed-user-id"] = properties.user_id
        properties.user_id = None
    headers.update(table_of(origin))
    properties.headers = headers
    return encode_header(properties, 0)
