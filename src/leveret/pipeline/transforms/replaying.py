"""Prepare messages for a replay: add headers with their origin.

Header `x-replayed-from` is the stream, `x-replayed-offset` the offset, `x-replayed-timestamp` the
time when the broker first received the message, `x-replay-id` the run. The other properties stay,
but `user-id` becomes `x-replayed-user-id`, because the broker accepts a `user-id` only from that
user. The headers of life events are removed.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from leveret.wire.properties import decode_properties, encode_header
from leveret.wire.tables import table_of

REPLAY_KEY = "replay_key"  # the column with deduplication ids
# Headers that a stream of life events adds to a message. They describe another copy.
_LIFE_EVENT_HEADERS = ("x-event", "x-queue", "x-broker-id", "x-publish-id", "x-cause-id")


def prepare_replay(frame: DataFrame, replay_id: str) -> DataFrame:
    """Return the columns of the sink, in one partition, ordered by time, stream and offset."""
    stamp = f.udf(_stamped, BinaryType(), useArrow=False)  # Arrow would need pandas
    at = f.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")  # in UTC, as sessions are
    header = stamp("properties", "stream", "offset", at, f.lit(replay_id))
    key = f.concat_ws("/", f.lit(replay_id), "stream", f.col("offset").cast("string"))
    ordered = frame.repartition(1).sortWithinPartitions("timestamp", "stream", "offset")
    return ordered.select(
        "exchange", "routing_key", header.alias("properties"), "body", key.alias(REPLAY_KEY)
    )


def _stamped(header: bytes, stream: str, offset: int, at: str, replay_id: str) -> bytes:
    """Return a content header with the headers of the message's origin."""
    properties = decode_properties(bytes(header))
    headers = dict(properties.headers or {})
    if "x-event" in headers:
        for name in _LIFE_EVENT_HEADERS:
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
