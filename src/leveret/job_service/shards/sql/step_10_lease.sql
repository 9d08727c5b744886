-- Functions that insert jobs, lease them, and end leases that ran out.
--
-- Sessions of a node use generic plans: PostgreSQL plans a statement of these functions once per
-- connection, not at each call. So a plan must be good for all arguments. Nodes do not allow hash
-- joins, since such a plan, made while a table is small, would read the whole table later.
--
-- A function that makes jobs ready notifies the nodes on the channel {{READY_CHANNEL}}, with the
-- topic. So a dequeue that waits needs no transactions.

CREATE FUNCTION leveret_notify(ns TEXT, tp TEXT) RETURNS VOID LANGUAGE sql AS $$
    SELECT pg_notify('{{READY_CHANNEL}}', jsonb_build_array(ns, tp)::text)
$$;

-- Inserts jobs that have no flush mark. Where another job has the same idempotency key, returns the
-- id of that job. A key is free again from {{KEY_FREE_EARLY}} before `kept_until` on: a node whose
-- clock is ahead may have told its client already that the key is free.
--
-- Its statements join the given jobs with the inserted ones. Nested loops would compare each with
-- each.
CREATE OR REPLACE FUNCTION leveret_put(
    ids BIGINT[], namespaces TEXT[], topic_names TEXT[], slots INT[], priorities INT[],
    afters TIMESTAMPTZ[], creations TIMESTAMPTZ[], key_names TEXT[], fair_keys TEXT[],
    payloads BYTEA[], now_at TIMESTAMPTZ, kept_until TIMESTAMPTZ, is_forced BOOLEAN
) RETURNS TABLE (job_id BIGINT, first_id BIGINT) LANGUAGE plpgsql
SET enable_nestloop = off SET enable_hashjoin = on AS $$
DECLARE
    lowest BIGINT;
    name RECORD;
BEGIN
    FOR name IN SELECT DISTINCT n, t FROM unnest(namespaces, topic_names) AS g(n, t) LOOP
        PERFORM leveret_gate(name.n, name.t);
    END LOOP;
    SELECT floor INTO lowest FROM floors;
    WITH given AS (
        SELECT g.id, g.ns, g.tp, g.slot, g.priority, g.created, g.key, g.fair, g.payload,
            coalesce(g.after, least(g.created, now_at)) AS after
        FROM unnest(ids, namespaces, topic_names, slots, priorities, afters, creations,
            key_names, fair_keys, payloads)
            AS g(id, ns, tp, slot, priority, after, created, key, fair, payload)
    ), fresh AS (
        INSERT INTO flush_marks (id, slot)
        SELECT g.id, g.slot FROM given g WHERE g.id >= lowest OR is_forced
            OR EXISTS (SELECT FROM origins o WHERE g.id BETWEEN o.low AND o.lost_high)
        ORDER BY g.id
        ON CONFLICT DO NOTHING RETURNING flush_marks.id
    ), keyed AS (
        INSERT INTO keys AS k (namespace, idempotency_key, id, topic, kept_until)
        SELECT DISTINCT ON (g.ns, g.key) g.ns, g.key, g.id, g.tp,
            leveret_put.kept_until - (now_at - least(g.created, now_at))
        FROM given g JOIN fresh f ON f.id = g.id WHERE g.key IS NOT NULL
        ORDER BY g.ns, g.key, g.id
        ON CONFLICT (namespace, idempotency_key) DO UPDATE
            SET id = excluded.id, topic = excluded.topic, kept_until = excluded.kept_until
            WHERE k.kept_until <= now_at + {{KEY_FREE_EARLY}}
        RETURNING k.id
    )
    INSERT INTO items (id, namespace, topic, status, priority, payload, deliver_after, created_at,
        idempotency_key, fair_key)
    SELECT g.id, g.ns, g.tp, CASE WHEN g.after > now_at THEN 'scheduled' ELSE 'ready' END,
        g.priority, g.payload, g.after, g.created, g.key, g.fair
    FROM given g JOIN fresh f ON f.id = g.id
    WHERE g.key IS NULL OR g.id IN (SELECT k.id FROM keyed k)
    ON CONFLICT DO NOTHING;
    FOR name IN
        SELECT DISTINCT n, t FROM unnest(namespaces, topic_names, fair_keys) AS g(n, t, f)
        WHERE f IS NOT NULL
            OR EXISTS (SELECT FROM rounds r WHERE r.namespace = n AND r.topic = t)
    LOOP
        PERFORM leveret_rank(name.n, name.t, ids);
    END LOOP;
    FOR name IN
        SELECT DISTINCT n, t FROM unnest(namespaces, topic_names, afters) AS g(n, t, a)
        WHERE a IS NULL OR a <= now_at
    LOOP
        PERFORM leveret_notify(name.n, name.t);
    END LOOP;
    RETURN QUERY SELECT s.id, s.first FROM (
        SELECT g.id, (SELECT k.id FROM keys k WHERE k.namespace = g.ns
            AND k.idempotency_key = g.key) AS first
        FROM unnest(ids, namespaces, key_names) AS g(id, ns, key) WHERE g.key IS NOT NULL
    ) AS s WHERE s.first <> s.id;
END $$;

-- Handles the jobs that are due, of one topic or of all: scheduled jobs become ready, leases that ran
-- out become failures, and prefetched jobs become ready again. Returns each topic and how many leases
-- ran out.
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

-- Whether the topic is among those that have been due for longest. Reads only the indexes of times.
CREATE OR REPLACE FUNCTION leveret_is_due(ns TEXT, tp TEXT, now_at TIMESTAMPTZ) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (SELECT namespace, topic FROM items WHERE status = 'scheduled'
            AND deliver_after <= now_at ORDER BY deliver_after LIMIT {{DUE_JOBS_LOOKED_AT}}) AS d
        WHERE d.namespace = ns AND d.topic = tp
    ) OR EXISTS (
        SELECT FROM (SELECT namespace, topic FROM items WHERE status IN ('leased', 'processing')
            AND lease_expires_at <= now_at ORDER BY lease_expires_at LIMIT {{DUE_JOBS_LOOKED_AT}}) AS d
        WHERE d.namespace = ns AND d.topic = tp
    );
END $$;

-- Hands out the most urgent ready jobs. Returns the jobs; a row without an id holds the number of
-- leases of the topic that had run out.
--
-- A thousand jobs with the largest payload would exceed the memory of a node, or its deadline. One
-- claim hands out at most {{BATCH_BYTES_MAX}} bytes of payloads, or one job more. The length of a
-- payload is known without reading it.
CREATE FUNCTION leveret_claim(
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
            WHERE namespace = ns AND topic = tp AND status = 'processing'));
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
