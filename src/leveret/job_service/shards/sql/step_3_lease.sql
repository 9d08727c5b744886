-- Functions that lease jobs, and end leases that ran out. `leveret_serve` is in step 6, and
-- `leveret_claim` in step 7.

CREATE FUNCTION leveret_note(failures JSONB, attempt INT, at TIMESTAMPTZ, error TEXT)
RETURNS JSONB LANGUAGE sql AS $$
    SELECT CASE WHEN jsonb_array_length(failures) < {{ERRORS_KEPT}} THEN failures
            ELSE failures - 0 END
        || jsonb_build_array(jsonb_build_object('attempt', attempt, 'time_ms',
            floor(extract(epoch FROM at) * 1000)::BIGINT, 'error', error))
$$;

-- Handles the jobs that are due, of one topic or of all: scheduled jobs become ready, leases that ran
-- out become failures, and prefetched jobs become ready again. Returns each topic and how many leases
-- ran out.
CREATE FUNCTION leveret_wake(ns TEXT, tp TEXT, now_at TIMESTAMPTZ, most INT)
RETURNS TABLE (woken_ns TEXT, woken_tp TEXT, expired BIGINT) LANGUAGE plpgsql AS $$
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
        woken_ns := name.namespace; woken_tp := name.topic; expired := 0;
        RETURN NEXT;
    END LOOP;
    RETURN QUERY
    WITH due AS (
        SELECT i.id, i.status FROM items i WHERE i.status IN ('leased', 'processing')
            AND i.lease_expires_at <= now_at
            AND (ns IS NULL OR (i.namespace = ns AND i.topic = tp))
            AND NOT EXISTS (SELECT FROM topics t WHERE t.namespace = i.namespace
                AND t.topic = i.topic AND t.state <> 'live')
        ORDER BY i.lease_expires_at LIMIT most FOR UPDATE OF i SKIP LOCKED
    ), back AS (
        UPDATE items i SET lease_expires_at = NULL,
            status = CASE WHEN due.status = 'processing' AND i.attempts > coalesce(
                (SELECT retries_max FROM topics t WHERE t.namespace = i.namespace
                    AND t.topic = i.topic), {{RETRIES_DEFAULT}}) THEN 'dead' ELSE 'ready' END,
            failures = CASE WHEN due.status = 'processing' THEN leveret_note(
                i.failures, i.attempts, now_at, 'the lease ran out') ELSE i.failures END
        FROM due WHERE i.id = due.id
        RETURNING i.namespace, i.topic, (due.status = 'processing')::INT AS ran_out
    )
    SELECT b.namespace, b.topic, sum(b.ran_out) FROM back b GROUP BY 1, 2;
END $$;

-- Whether the topic is among those that have been due for longest. Reads only the indexes of times.
CREATE FUNCTION leveret_is_due(ns TEXT, tp TEXT, now_at TIMESTAMPTZ) RETURNS BOOLEAN
LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT FROM (SELECT namespace, topic FROM items WHERE status = 'scheduled'
            AND deliver_after <= now_at ORDER BY deliver_after LIMIT {{DUE_JOBS_LOOKED_AT}}) AS d
        WHERE d.namespace = ns AND d.topic = tp
    ) OR EXISTS (
        SELECT FROM (SELECT namespace, topic FROM items WHERE status IN ('leased', 'processing')
            AND lease_expires_at <= now_at ORDER BY lease_expires_at LIMIT {{DUE_JOBS_LOOKED_AT}}) AS d
        WHERE d.namespace = ns AND d.topic = tp
    )
$$;

-- Leases jobs ahead, for a list in Redis. Takes none of a topic that limits its leases.
CREATE FUNCTION leveret_prefetch(
    ns TEXT, tp TEXT, most INT, now_at TIMESTAMPTZ, until_at TIMESTAMPTZ
) RETURNS TABLE {{job_columns}} LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    IF EXISTS (SELECT FROM topics WHERE namespace = ns AND topic = tp
            AND concurrency_max IS NOT NULL) THEN
        RETURN;
    END IF;
    RETURN QUERY UPDATE items i SET status = 'leased', lease_expires_at = until_at
    WHERE i.id = ANY(ARRAY(
        SELECT r.id FROM items r
        WHERE r.namespace = ns AND r.topic = tp AND r.status = 'ready'
            AND r.deliver_after <= now_at
        ORDER BY r.priority, r.fair_rank, r.deliver_after, r.id
        LIMIT most FOR UPDATE SKIP LOCKED))
    RETURNING i.id, i.token, NULL::BYTEA, i.priority, i.attempts, i.deliver_after,
        i.created_at, i.lease_expires_at, i.fair_key, i.fair_rank;
END $$;

-- Makes prefetched jobs that were not handed out ready again.
CREATE FUNCTION leveret_take_back(ns TEXT, tp TEXT, ids BIGINT[]) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items i SET status = 'ready', lease_expires_at = NULL
        WHERE i.id = ANY(ids) AND {{is_of_topic}} AND i.status = 'leased';
END $$;
