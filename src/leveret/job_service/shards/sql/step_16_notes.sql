-- Functions that lease jobs, and take back leases that ran out only after the notes in Redis were written.
--
-- An ack of a prefetched job is answered when Redis has a note of it. So a lease that ran out may belong to
-- a job that is acked. The node that takes leases back writes the notes first (step 17). It says up to which
-- time leases may have ended then (`ended_at`): later ones may have notes that it has not seen.

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
