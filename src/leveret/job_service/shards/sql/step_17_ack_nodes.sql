-- Nodes that may have answered acks which the table does not have.
--
-- A node answers the ack of a prefetched job when Redis has a note of it, and keeps the ack until the table
-- has it. Redis may lose its memory, and a shard may be away for longer than the leases last. Then only that
-- node knows that the jobs are done. So it announces itself on the shard before it answers acks of a topic
-- this way, and no node takes back a lease for which it may have an ack.
CREATE TABLE ack_nodes (
    namespace TEXT NOT NULL,
    topic TEXT NOT NULL,
    node UUID NOT NULL,
    written_until TIMESTAMPTZ NOT NULL,  -- the table has its acks of all leases that ended by then
    renewals BIGINT NOT NULL,  -- how often the node has renewed the announcement
    PRIMARY KEY (namespace, topic, node)
);

-- Deletes jobs that were acked, and notes that prefetched jobs were handed out, each with the end of the
-- lease that its worker was told.
--
-- A job that was acked goes although it may have been leased again meanwhile: that would be its last
-- delivery. The update skips jobs that another call settles at this moment: their leases end with that call,
-- and waiting could deadlock.
--
-- If `writer` is not NULL, this node announces itself: the table has all its acks of leases that ended by
-- `all_until`. If `is_last`, it withdraws its announcements up to that time, but no later one.
CREATE FUNCTION leveret_write_notes(
    ns TEXT, tp TEXT, acked_ids BIGINT[], acked_tokens BIGINT[], ids BIGINT[], tokens BIGINT[],
    ends TIMESTAMPTZ[], writer UUID, all_until TIMESTAMPTZ, is_last BOOLEAN
) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    IF cardinality(acked_ids) > 0 THEN
        DELETE FROM items i USING leveret_handles(acked_ids, acked_tokens) h
            WHERE i.id = h.id AND {{is_of_topic}} AND i.token >= h.token;
        PERFORM leveret_notify_limited(ns, tp);
    END IF;
    UPDATE items i SET status = 'processing',
        lease_expires_at = least(i.lease_expires_at, h.until_at + {{PREFETCH_MARGIN}})
        FROM (
            SELECT j.id, n.until_at FROM unnest(ids, tokens, ends) AS n(id, token, until_at)
            JOIN items j ON j.id = n.id AND j.token = n.token AND j.status = 'leased'
            FOR UPDATE OF j SKIP LOCKED
        ) AS h
        WHERE i.id = h.id AND {{is_of_topic}};
    IF is_last THEN
        DELETE FROM ack_nodes
            WHERE namespace = ns AND topic = tp AND node = writer AND written_until <= all_until;
    ELSIF writer IS NOT NULL THEN
        INSERT INTO ack_nodes AS a VALUES (ns, tp, writer, all_until, 0)
            ON CONFLICT (namespace, topic, node)
            DO UPDATE SET written_until = all_until, renewals = a.renewals + 1;
    END IF;
END $$;

-- Removes the announcement of a node that is silent, unless the node has renewed it.
CREATE FUNCTION leveret_remove_silent(
    ns TEXT, tp TEXT, silent UUID, known_renewals BIGINT
) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    DELETE FROM ack_nodes
        WHERE namespace = ns AND topic = tp AND node = silent AND renewals = known_renewals;
END $$;

-- Handles the jobs that are due, of one topic or of all: scheduled jobs become ready, leases that ran
-- out become failures, and prefetched jobs that were not noted as handed out become ready again, as if
-- they had not been leased. Leases that ended after `ended_at`, those for which a node may have acks that
-- the table does not have, and those of the topics in `left_ns` and `left_tp`, are left alone. Returns
-- each topic and how many leases ran out.
CREATE OR REPLACE FUNCTION leveret_wake(
    ns TEXT, tp TEXT, now_at TIMESTAMPTZ, most INT, ended_at TIMESTAMPTZ, left_ns TEXT[], left_tp TEXT[]
) RETURNS TABLE (woken_ns TEXT, woken_tp TEXT, expired BIGINT) LANGUAGE plpgsql AS $$
DECLARE
    name RECORD;
    woken BIGINT[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared({{GATE_LOCK}});
    WITH due AS (
        SELECT i.id FROM items i WHERE i.status = 'scheduled' AND i.deliver_after <= now_at
            AND (ns IS NULL OR (i.namespace = ns AND i.topic = tp))
            AND NOT EXISTS (SELECT FROM topics t WHERE t.namespace = i.namespace
                AND t.topic = i.topic AND t.state <> 'live')
        ORDER BY i.deliver_after LIMIT most FOR UPDATE OF i SKIP LOCKED
    ), changed AS (
        UPDATE items i SET status = 'ready' FROM due WHERE i.id = due.id RETURNING i.id
    ) SELECT array_agg(id) INTO woken FROM changed;
    FOR name IN
        SELECT DISTINCT i.namespace, i.topic FROM items i WHERE i.id = ANY(woken)
    LOOP
        IF EXISTS (SELECT FROM items i WHERE i.id = ANY(woken) AND i.namespace = name.namespace
                AND i.topic = name.topic AND i.fair_key IS NOT NULL)
            OR EXISTS (SELECT FROM rounds r WHERE r.namespace = name.namespace
                AND r.topic = name.topic) THEN
            PERFORM leveret_rank(name.namespace, name.topic, woken);
        END IF;
        PERFORM leveret_notify(name.namespace, name.topic);
        woken_ns := name.namespace; woken_tp := name.topic; expired := 0;
        RETURN NEXT;
    END LOOP;
    RETURN QUERY
    WITH due AS (
        SELECT i.id, i.status FROM items i WHERE i.status IN ('leased', 'processing')
            AND i.lease_expires_at <= least(now_at, ended_at)
            AND (ns IS NULL OR (i.namespace = ns AND i.topic = tp))
            AND NOT EXISTS (SELECT FROM topics t WHERE t.namespace = i.namespace
                AND t.topic = i.topic AND t.state <> 'live')
            AND NOT EXISTS (SELECT FROM unnest(left_ns, left_tp) AS l(n, t)
                WHERE l.n = i.namespace AND l.t = i.topic)
            AND NOT EXISTS (SELECT FROM ack_nodes a WHERE a.namespace = i.namespace
                AND a.topic = i.topic AND a.written_until < i.lease_expires_at)
        ORDER BY i.lease_expires_at LIMIT most FOR UPDATE OF i SKIP LOCKED
    ), back AS (
        UPDATE items i SET lease_expires_at = NULL,
            attempts = i.attempts - CASE WHEN due.status = 'leased' THEN least(i.attempts, 1) ELSE 0 END,
            status = CASE WHEN due.status = 'processing' AND i.attempts > coalesce(
                (SELECT retries_max FROM topics t WHERE t.namespace = i.namespace
                    AND t.topic = i.topic), {{RETRIES_DEFAULT}}) THEN 'dead' ELSE 'ready' END,
            failures = CASE WHEN due.status = 'processing' THEN leveret_note(
                i.failures, i.attempts, now_at, 'the lease ran out') ELSE i.failures END
        FROM due WHERE i.id = due.id
        RETURNING i.namespace, i.topic, (due.status = 'processing')::INT AS ran_out
    )
    SELECT b.namespace, b.topic, sum(b.ran_out) FROM back b,
        LATERAL leveret_notify(b.namespace, b.topic) GROUP BY 1, 2;
END $$;

-- The notes of a node of schema 16, which does not announce itself.
CREATE OR REPLACE FUNCTION leveret_write_notes(
    ns TEXT, tp TEXT, acked_ids BIGINT[], acked_tokens BIGINT[], ids BIGINT[], tokens BIGINT[],
    ends TIMESTAMPTZ[]
) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_write_notes(
        ns, tp, acked_ids, acked_tokens, ids, tokens, ends, NULL, NULL, FALSE);
END $$;
