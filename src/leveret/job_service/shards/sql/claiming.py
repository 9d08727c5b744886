"""The claim of a shard, bounded by bytes as well as by jobs.

A thousand jobs of the greatest payload are more than a node wants in its memory, or gets across
within its deadline. So one claim hands out at most `BATCH_BYTES_MAX` of payloads, or one job more;
prefetched jobs beyond that are ready again. The length of a payload is known without reading it.
"""

from typing import Final

from leveret.job_model import BATCH_BYTES_MAX, LEASE_MS_DEFAULT, PAYLOAD_BYTES_MAX
from leveret.job_service.shards.sql.functions import GATE, ITS, RETURNED

_HAND_OUT: Final = """UPDATE items i SET status = 'processing', attempts = i.attempts + 1,
            token = greatest(i.token + 1, fence), lease_expires_at = until_at"""
_HANDED_OUT: Final = """RETURNING i.id, i.token, i.payload, i.priority, i.attempts,
            i.deliver_after, i.created_at, i.lease_expires_at, i.fair_key, i.fair_rank"""
_MAKE_READY: Final = f"""UPDATE items i SET status = 'ready', lease_expires_at = NULL
            WHERE i.id = ANY(popped) AND {ITS} AND i.status = 'leased'"""
_MOST_URGENT: Final = """
                    SELECT j.id, j.priority, j.fair_rank, j.deliver_after,
                        octet_length(j.payload) AS bytes
                    FROM items j
                    WHERE j.namespace = ns AND j.topic = tp AND j.status = 'ready'
                    ORDER BY j.priority, j.fair_rank, j.deliver_after, j.id
                    LIMIT room FOR UPDATE SKIP LOCKED"""
_FEW: Final = BATCH_BYTES_MAX // PAYLOAD_BYTES_MAX  # jobs that always fit, and are not measured
_PREFETCHED: Final = f"{ITS} AND i.status = 'leased' AND i.lease_expires_at > now_at"

CLAIMING: Final = f"""
-- Hands out: first the prefetched jobs `popped`, then the most urgent of those that are ready.
-- Answers the jobs, and how many leases of the topic were found run out as a row without an id.
-- It replaces one that counted no bytes, where a database has that.
CREATE OR REPLACE FUNCTION leveret_claim(
    ns TEXT, tp TEXT, popped BIGINT[], most INT, wanted_ms BIGINT, fence BIGINT,
    now_at TIMESTAMPTZ
) RETURNS TABLE {RETURNED} LANGUAGE plpgsql AS $$
DECLARE
    settings topics%ROWTYPE;
    until_at TIMESTAMPTZ;
    room INT := most;
    room_bytes BIGINT := {BATCH_BYTES_MAX};
    fitting BIGINT[];
    handed INT;
BEGIN
    PERFORM leveret_gate(ns, tp);
    SELECT * INTO settings FROM topics WHERE namespace = ns AND topic = tp;
    until_at := now_at
        + coalesce(wanted_ms, settings.lease_ms, {LEASE_MS_DEFAULT}) * INTERVAL '1 ms';
    IF leveret_is_due(ns, tp, now_at) THEN
        SELECT sum(w.expired) INTO job_token FROM leveret_wake(ns, tp, now_at, 500) w;
        IF job_token > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
    IF settings.concurrency_max IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock({GATE}, hashtext(ns || tp));
        {_MAKE_READY};
        room := least(room, settings.concurrency_max - (SELECT count(*) FROM items
            WHERE namespace = ns AND topic = tp AND status = 'processing'));
    ELSIF cardinality(popped) > 0 THEN
        fitting := popped;
        IF cardinality(popped) > {_FEW} THEN
            SELECT array_agg(f.id) INTO fitting FROM (
                SELECT i.id, octet_length(i.payload) AS bytes,
                    sum(octet_length(i.payload)) OVER (ORDER BY p.n) AS bytes_so_far
                FROM unnest(popped) WITH ORDINALITY AS p(id, n) JOIN items i ON i.id = p.id
                WHERE {_PREFETCHED}
            ) AS f WHERE f.bytes_so_far - f.bytes < room_bytes;
        END IF;
        RETURN QUERY {_HAND_OUT}
        WHERE i.id = ANY(fitting) AND {_PREFETCHED}
        {_HANDED_OUT};
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed < cardinality(popped) THEN
            {_MAKE_READY};
        END IF;
        room := room - handed;
        IF room > 0 THEN
            room_bytes := room_bytes - (SELECT coalesce(sum(octet_length(payload)), 0)
                FROM items WHERE id = ANY(fitting));
        END IF;
    END IF;
    IF room > 0 AND room::BIGINT * {PAYLOAD_BYTES_MAX} <= room_bytes THEN
        RETURN QUERY {_HAND_OUT}
        WHERE i.id = ANY(ARRAY(SELECT r.id FROM ({_MOST_URGENT}) AS r))
        {_HANDED_OUT};
    ELSIF room > 0 AND room_bytes > 0 THEN
        RETURN QUERY {_HAND_OUT}
        WHERE i.id = ANY(ARRAY(
            SELECT f.id FROM (
                SELECT r.id, r.bytes, sum(r.bytes) OVER (
                    ORDER BY r.priority, r.fair_rank, r.deliver_after, r.id) AS bytes_so_far
                FROM ({_MOST_URGENT}) AS r
            ) AS f WHERE f.bytes_so_far - f.bytes < room_bytes))
        {_HANDED_OUT};
    END IF;
END $$;
"""
