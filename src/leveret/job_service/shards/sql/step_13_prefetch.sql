-- Functions that lease jobs ahead. `leveret_wake` and `leveret_claim` are in step 16.
--
-- A job that is leased ahead (*prefetched*) has its token and its attempt already. A list in Redis
-- offers it for {{PREFETCH_OFFERED}}. Its lease in the table is longer by that time, and by
-- {{PREFETCH_MARGIN}} for the error with which a node knows the time of the shard. So the worker that
-- gets the job from the list has its whole lease, without a transaction. The status `leased` becomes
-- `processing` when a node notes here that the job was handed out (step 16).

-- Leases jobs ahead, up to {{PREFETCH_BYTES_MAX}} bytes or one job more. Takes none of a topic that
-- limits its leases, that has fair keys (each hand-out changes their turns here), or whose leases are
-- so long that a job which Redis has lost would be hidden for too long.
CREATE FUNCTION leveret_prefetch(
    ns TEXT, tp TEXT, most INT, wanted_ms BIGINT, fence BIGINT, now_at TIMESTAMPTZ
) RETURNS TABLE (
    job_id BIGINT, job_token BIGINT, job_payload BYTEA, job_priority INT, job_attempts INT,
    job_after TIMESTAMPTZ, job_created TIMESTAMPTZ, job_rank BIGINT, lease_ms BIGINT,
    lease_ms_max BIGINT, offered_until TIMESTAMPTZ
) LANGUAGE plpgsql AS $$
DECLARE
    settings topics%ROWTYPE;
    room INT := most;
    usual_ms BIGINT;
    longest_ms BIGINT;
BEGIN
    PERFORM leveret_gate(ns, tp);
    SELECT * INTO settings FROM topics WHERE namespace = ns AND topic = tp;
    usual_ms := coalesce(settings.lease_ms, {{LEASE_MS_DEFAULT}});
    longest_ms := coalesce(wanted_ms, usual_ms);
    IF settings.concurrency_max IS NOT NULL OR longest_ms > {{PREFETCH_LEASE_MS_MAX}}
        OR EXISTS (SELECT FROM rounds WHERE namespace = ns AND topic = tp) THEN
        RETURN;
    END IF;
    RETURN QUERY UPDATE items i SET status = 'leased', attempts = i.attempts + 1,
        token = greatest(i.token + 1, fence), lease_expires_at = now_at + {{PREFETCH_OFFERED}}
            + {{PREFETCH_MARGIN}} + longest_ms * INTERVAL '1 ms'
    WHERE i.id = ANY(ARRAY(
        SELECT f.id FROM (
            SELECT r.id, r.bytes, sum(r.bytes) OVER (
                ORDER BY r.priority, r.fair_rank, r.deliver_after, r.id) AS bytes_so_far
            FROM ({{most_urgent_ready}}) AS r
        ) AS f WHERE f.bytes_so_far - f.bytes < {{PREFETCH_BYTES_MAX}}))
    RETURNING i.id, i.token, i.payload, i.priority, i.attempts, i.deliver_after, i.created_at,
        i.fair_rank, usual_ms, longest_ms, now_at + {{PREFETCH_OFFERED}};
END $$;

-- Makes prefetched jobs that no worker has taken ready again, as if they had not been leased.
CREATE FUNCTION leveret_take_back(ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[]) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items i SET status = 'ready', lease_expires_at = NULL, attempts = i.attempts - 1
        FROM unnest(ids, tokens) AS h(id, token)
        WHERE i.id = h.id AND {{is_of_topic}} AND i.status = 'leased' AND i.token = h.token;
    PERFORM leveret_notify(ns, tp);
END $$;
