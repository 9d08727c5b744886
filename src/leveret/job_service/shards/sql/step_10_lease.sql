-- The function that inserts jobs. `leveret_wake` and `leveret_claim` are in step 16.
--
-- Sessions of a node use generic plans: PostgreSQL plans a statement of these functions once per
-- connection, not at each call. So a plan must be good for all arguments. Nodes do not allow hash
-- joins: a plan with one, made while a table is small, would read the whole table later.
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

-- True if the topic is among the topics that have been due for longest. Reads the indexes of times only.
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
