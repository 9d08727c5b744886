-- Functions that lease jobs, also ahead, and end leases that ran out.
--
-- A job that is leased ahead (*prefetched*) has its token and its attempt already. A list in Redis
-- offers it for {{PREFETCH_OFFERED}}. Its lease in the table is longer by that time, and by
-- {{PREFETCH_MARGIN}} for the error with which a node knows the time of the shard. So the worker that
-- gets the job from the list has its whole lease, without a transaction. The status `leased` becomes
-- `processing` when a node notes here that the job was handed out (`leveret_note_handed_out`).

-- Handles the jobs that are due, of one topic or of all: scheduled jobs become ready, leases that ran
-- out become failures, and prefetched jobs that were not noted as handed out become ready again, as if
-- they had not been leased. Returns each topic and how many leases ran out.
CREATE OR REPLACE FUNCTION leveret_wake(ns TEXT, tp TEXT, now_at TIMESTAMPTZ, most INT)
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
        PERFORM leveret_notify(name.namespace, name.topic);
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

-- Hands out the most urgent ready jobs. Returns the jobs; a row without an id holds the number of
-- leases of the topic that had run out.
--
-- A thousand jobs with the largest payload would exceed the memory of a node, or its deadline. One
-- claim hands out at most {{BATCH_BYTES_MAX}} bytes of payloads, or one job more. The length of a
-- payload is known without reading it.
CREATE OR REPLACE FUNCTION leveret_claim(
    ns TEXT, tp TEXT, most INT, wanted_ms BIGINT, fence BIGINT, now_at TIMESTAMPTZ
) RETURNS TABLE {{job_columns}} LANGUAGE plpgsql AS $$
DECLARE
    settings topics%ROWTYPE;
    until_at TIMESTAMPTZ;
    room INT := most;
BEGIN
    PERFORM leveret_gate(ns, tp);
    SELECT * INTO settings FROM topics WHERE namespace = ns AND topic = tp;
    until_at := now_at
        + coalesce(wanted_ms, settings.lease_ms, {{LEASE_MS_DEFAULT}}) * INTERVAL '1 ms';
    IF leveret_is_due(ns, tp, now_at) THEN
        SELECT sum(w.expired) INTO job_token FROM leveret_wake(ns, tp, now_at, 500) w;
        IF job_token > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
    IF settings.concurrency_max IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock({{GATE_LOCK}}, hashtext(ns || tp));
        room := least(room, settings.concurrency_max - (SELECT count(*) FROM items
            WHERE namespace = ns AND topic = tp AND status IN ('leased', 'processing')));
    END IF;
    IF room > {{JOBS_THAT_ALWAYS_FIT}} THEN
        RETURN QUERY {{hand_out}}
        WHERE i.id = ANY(ARRAY(
            SELECT f.id FROM (
                SELECT r.id, r.bytes, sum(r.bytes) OVER (
                    ORDER BY r.priority, r.fair_rank, r.deliver_after, r.id) AS bytes_so_far
                FROM ({{most_urgent_ready}}) AS r
            ) AS f WHERE f.bytes_so_far - f.bytes < {{BATCH_BYTES_MAX}}))
        {{returning_handed_out}};
    ELSIF room > 0 THEN
        RETURN QUERY {{hand_out}}
        WHERE i.id = ANY(ARRAY(SELECT r.id FROM ({{most_urgent_ready}}) AS r))
        {{returning_handed_out}};
    END IF;
END $$;

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

-- Notes that prefetched jobs were handed out, each with the end of the lease that its worker was told.
-- Skips jobs that are being settled: no lease of theirs is left to note, and waiting could deadlock.
CREATE FUNCTION leveret_note_handed_out(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], ends TIMESTAMPTZ[]
) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items i SET status = 'processing',
        lease_expires_at = least(i.lease_expires_at, h.until_at + {{PREFETCH_MARGIN}})
        FROM (
            SELECT j.id, n.until_at FROM unnest(ids, tokens, ends) AS n(id, token, until_at)
            JOIN items j ON j.id = n.id AND j.token = n.token AND j.status = 'leased'
            FOR UPDATE OF j SKIP LOCKED
        ) AS h
        WHERE i.id = h.id AND {{is_of_topic}};
END $$;
