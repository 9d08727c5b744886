"""SQL statements of calls that serve one topic, and of due times of all topics.

The first two arguments of a call are the namespace and the name of the topic. If the argument for
the time is NULL, the shard uses its own clock.
"""

from typing import Final

from leveret.job_service.shards.sql.loader import DUE_CHANNEL

# The last argument is the time until which leases may have ended that are taken back. NULL: the
# notes of the topic were not read, so none is taken back, and a row says if one has ended (ENDED).
CLAIM: Final = "SELECT * FROM leveret_claim($1, $2, $3, $4, $5, coalesce($6, now()), $7)"
ENDED: Final = -1  # the token of that row, which has no id
WAKE: Final = (
    "SELECT * FROM leveret_wake(NULL, NULL, coalesce($1, now()), $2, $3, $4::TEXT[], $5::TEXT[])"
)
PREFETCH: Final = "SELECT * FROM leveret_prefetch($1, $2, $3, $4, $5, coalesce($6, now()))"
NOTIFY: Final = "SELECT leveret_notify($1, $2)"  # of ready or prefetched jobs, to all nodes
TAKE_BACK: Final = "SELECT leveret_take_back($1, $2, $3::BIGINT[], $4::BIGINT[])"
WRITE_NOTES: Final = (
    "SELECT leveret_write_notes($1, $2, $3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[],"
    " $7::TIMESTAMPTZ[], $8::UUID, $9::TIMESTAMPTZ, $10::BOOLEAN)"
)
ACK: Final = "SELECT * FROM leveret_ack($1, $2, $3::BIGINT[], $4::BIGINT[], coalesce($5, now()))"
NACK: Final = (
    "SELECT * FROM leveret_nack("
    "$1, $2, $3::BIGINT[], $4::BIGINT[], $5, $6, $7, coalesce($8, now()))"
)
# Makes jobs dead at once. Databases of earlier versions have the function by this name.
NACK_DEAD: Final = (
    "SELECT * FROM leveret_bury($1, $2, $3::BIGINT[], $4::BIGINT[], $5, coalesce($6, now()))"
)
EXTEND: Final = (
    "SELECT * FROM leveret_extend($1, $2, $3::BIGINT[], $4::BIGINT[], $5, coalesce($6, now()))"
)
DELIVER_NOW: Final = "SELECT * FROM leveret_deliver_now($1, $2, $3::BIGINT[], coalesce($4, now()))"
# When the next job, lease or schedule of any topic is due; NULL: none is.
DUE_IN_S: Final = (
    "SELECT extract(epoch FROM least("
    "(SELECT deliver_after FROM items WHERE status = 'scheduled'"
    " ORDER BY deliver_after LIMIT 1),"
    " (SELECT lease_expires_at FROM items WHERE status IN ('leased', 'processing')"
    " ORDER BY lease_expires_at LIMIT 1),"
    " (SELECT next_at FROM schedules WHERE NOT is_paused ORDER BY next_at LIMIT 1)"
    ") - coalesce($1, now()))::FLOAT8 AS due_in_s"
)
TELL_DUE: Final = f"SELECT pg_notify('{DUE_CHANNEL}', $1)"  # to all nodes
FIND: Final = (
    "SELECT *, coalesce($4, now()) AS asked_at FROM items"
    " WHERE (namespace || '') = $1 AND (topic || '') = $2 AND id = $3"
)
