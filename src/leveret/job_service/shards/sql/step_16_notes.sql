-- Functions that write the notes in Redis of prefetched jobs, and that lease jobs and take back leases that
-- ran out only after the notes were written.
--
-- An ack of a prefetched job is answered when Redis has a note of it. So a lease that ran out may belong to
-- a job that is acked. The node that takes leases back writes the notes first. It says up to which time
-- leases may have ended then (`ended_at`): later ones may have notes that it has not seen.

-- Deletes jobs that were acked, and notes that prefetched jobs were handed out, each with the end of the
-- lease that its worker was told.
--
-- A job that was acked goes although it may have been leased again meanwhile: that would be its last
-- delivery. The update skips jobs that are being settled: no lease of theirs is left to note, and waiting
-- could deadlock.
CREATE FUNCTION leveret_write_notes(
    ns TEXT, tp TEXT, acked_ids BIGINT[], acked_tokens BIGINT[], ids BIGINT[], tokens BIGINT[],
    ends TIMESTAMPTZ[]
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
END $$;

-- Handles the jobs that are due, of one topic or of all: scheduled jobs become ready, leases that ran
-- out become failures, and prefetched jobs that were not noted as handed out become ready again, as if
-- they had not been leased. Leases that ended after `ended_at`, and those of the topics in `left_ns` and
-- `left_tp`, are left alone. Returns each topic and how many leases ran out.
CREATE FUNCTION leveret_wake(
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
-- leases of the topic that had run out. If there are such leases and the notes were not read (`ended_at`
-- is NULL), returns only such a row with -1.
--
-- A thousand jobs with the largest payload would exceed the memory of a node, or its deadline. One
-- claim hands out at most {{BATCH_BYTES_MAX}} bytes of payloads, or one job more. The length of a
-- payload is known without reading it.
CREATE FUNCTION leveret_claim(
    ns TEXT, tp TEXT, most INT, wanted_ms BIGINT, fence BIGINT, now_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ
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
        IF ended_at IS NULL AND EXISTS (
            SELECT FROM (SELECT namespace, topic FROM items
                WHERE status IN ('leased', 'processing') AND lease_expires_at <= now_at
                ORDER BY lease_expires_at LIMIT {{DUE_JOBS_LOOKED_AT}}) AS d
            WHERE d.namespace = ns AND d.topic = tp
        ) THEN
            job_token := -1;
            RETURN NEXT;
            RETURN;
        END IF;
        SELECT sum(w.expired) INTO job_token FROM leveret_wake(
            ns, tp, now_at, 500, coalesce(ended_at, '-infinity'), '{}', '{}') w;
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

-- The same functions as nodes of earlier versions call them, which know no acks in Redis.
-- `leveret_deliver_now` (step 14) is called after the notes of its topic were written.
CREATE OR REPLACE FUNCTION leveret_wake(ns TEXT, tp TEXT, now_at TIMESTAMPTZ, most INT)
RETURNS TABLE (woken_ns TEXT, woken_tp TEXT, expired BIGINT) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM leveret_wake(ns, tp, now_at, most, now_at, '{}', '{}');
END $$;
CREATE OR REPLACE FUNCTION leveret_claim(
    ns TEXT, tp TEXT, most INT, wanted_ms BIGINT, fence BIGINT, now_at TIMESTAMPTZ
) RETURNS TABLE {{job_columns}} LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM leveret_claim(ns, tp, most, wanted_ms, fence, now_at, now_at);
END $$;
CREATE OR REPLACE FUNCTION leveret_note_handed_out(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], ends TIMESTAMPTZ[]
) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_write_notes(ns, tp, '{}', '{}', ids, tokens, ends);
END $$;
