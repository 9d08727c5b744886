-- Functions that insert jobs. Each function is one transaction when called.
--
-- Every function that changes items passes the *gate* first: an advisory lock that all of them
-- share. Freezing a topic, or raising the floor of flush marks, takes the lock exclusively for a
-- moment. A function that passed the gate therefore sees the state of its topic as it stays until
-- the function has committed. A topic that is not `live` raises SQLSTATE {{TOPIC_STOPPED}}.
--
-- Times come as arguments: a shard decides nothing by its own clock.

CREATE FUNCTION leveret_gate(ns TEXT, tp TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE found_state TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({{GATE_LOCK}});
    SELECT state INTO found_state FROM topics WHERE namespace = ns AND topic = tp;
    IF found_state <> 'live' THEN
        RAISE EXCEPTION USING ERRCODE = '{{TOPIC_STOPPED}}', MESSAGE = found_state,
            DETAIL = jsonb_build_array(ns, tp)::text;
    END IF;
END $$;

-- Gives each ready job among `ids` its rank: the next rank of its fair key, but none before the round
-- that is being served. A key that was idle therefore does not catch up on ranks it did not use.
CREATE FUNCTION leveret_rank(ns TEXT, tp TEXT, ids BIGINT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    job RECORD;
    served BIGINT;
    given BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock({{GATE_LOCK}}, hashtext(ns || tp));
    FOR job IN
        SELECT i.id, i.priority, coalesce(i.fair_key, '') AS fair_key FROM items i
        WHERE i.id = ANY(ids) AND {{is_of_topic}} AND i.status = 'ready' AND i.fair_rank = 0
        ORDER BY i.deliver_after, i.id
    LOOP
        INSERT INTO rounds VALUES (ns, tp, job.priority, 1) ON CONFLICT DO NOTHING;
        SELECT rank INTO served FROM rounds
            WHERE namespace = ns AND topic = tp AND priority = job.priority;
        INSERT INTO turns AS t VALUES (ns, tp, job.priority, job.fair_key, served)
            ON CONFLICT (namespace, topic, priority, fair_key)
            DO UPDATE SET rank = greatest(t.rank + 1, served) RETURNING rank INTO given;
        UPDATE items SET fair_rank = given WHERE id = job.id;
    END LOOP;
END $$;

-- Inserts jobs that have no flush mark. Where another job has the same idempotency key, returns the
-- id of that job.
CREATE FUNCTION leveret_put(
    ids BIGINT[], namespaces TEXT[], topic_names TEXT[], slots INT[], priorities INT[],
    afters TIMESTAMPTZ[], creations TIMESTAMPTZ[], key_names TEXT[], fair_keys TEXT[],
    payloads BYTEA[], now_at TIMESTAMPTZ, kept_until TIMESTAMPTZ, is_forced BOOLEAN
) RETURNS TABLE (job_id BIGINT, first_id BIGINT) LANGUAGE plpgsql AS $$
DECLARE
    lowest BIGINT;
    name RECORD;
BEGIN
    FOR name IN SELECT DISTINCT n, t FROM unnest(namespaces, topic_names) AS g(n, t) LOOP
        PERFORM leveret_gate(name.n, name.t);
    END LOOP;
    SELECT floor INTO lowest FROM floors;
    WITH given AS (
        SELECT * FROM unnest(ids, namespaces, topic_names, slots, priorities, afters, creations,
            key_names, fair_keys, payloads)
            AS g(id, ns, tp, slot, priority, after, created, key, fair, payload)
    ), fresh AS (
        INSERT INTO flush_marks (id, slot)
        SELECT g.id, g.slot FROM given g WHERE g.id >= lowest OR is_forced ORDER BY g.id
        ON CONFLICT DO NOTHING RETURNING flush_marks.id
    ), keyed AS (
        INSERT INTO keys (namespace, idempotency_key, id, topic, kept_until)
        SELECT g.ns, g.key, g.id, g.tp, greatest(leveret_put.kept_until, g.after)
        FROM given g JOIN fresh f ON f.id = g.id WHERE g.key IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING keys.id
    )
    INSERT INTO items (id, namespace, topic, status, priority, payload, deliver_after, created_at,
        idempotency_key, fair_key)
    SELECT g.id, g.ns, g.tp, CASE WHEN g.after > now_at THEN 'scheduled' ELSE 'ready' END,
        g.priority, g.payload, g.after, g.created, g.key, g.fair
    FROM given g JOIN fresh f ON f.id = g.id
    WHERE g.key IS NULL OR EXISTS (SELECT FROM keyed k WHERE k.id = g.id)
    ON CONFLICT DO NOTHING;
    FOR name IN
        SELECT DISTINCT n, t FROM unnest(namespaces, topic_names, fair_keys) AS g(n, t, f)
        WHERE f IS NOT NULL
            OR EXISTS (SELECT FROM rounds r WHERE r.namespace = n AND r.topic = t)
    LOOP
        PERFORM leveret_rank(name.n, name.t, ids);
    END LOOP;
    RETURN QUERY SELECT g.id, k.id FROM unnest(ids, namespaces, key_names) AS g(id, ns, key)
        JOIN keys k ON k.namespace = g.ns AND k.idempotency_key = g.key AND k.id <> g.id;
END $$;

-- Takes jobs back. A node that inserts them later finds their marks.
CREATE FUNCTION leveret_undo(ids BIGINT[], slots INT[]) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({{GATE_LOCK}});
    INSERT INTO flush_marks AS m (id, slot, is_undone)
        SELECT g.id, g.slot, TRUE FROM unnest(ids, slots) AS g(id, slot) ORDER BY g.id
        ON CONFLICT (id) DO UPDATE SET is_undone = TRUE;
    DELETE FROM keys k USING items i WHERE i.id = ANY(ids) AND k.id = i.id
        AND k.namespace = i.namespace AND k.idempotency_key = i.idempotency_key;
    DELETE FROM items WHERE id = ANY(ids);
END $$;

-- A log reports the lowest of its ids that may still come. Returns the floor, and whether the log is
-- new here.
CREATE FUNCTION leveret_origin(
    log UUID, log_low BIGINT, now_at TIMESTAMPTZ, forgotten_at TIMESTAMPTZ
) RETURNS TABLE (floor_id BIGINT, is_new BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE was_new BOOLEAN;
BEGIN
    PERFORM pg_advisory_xact_lock({{GATE_LOCK}});
    SELECT NOT EXISTS (SELECT FROM origins WHERE origin = log) INTO was_new;
    INSERT INTO origins VALUES (log, log_low, now_at)
        ON CONFLICT (origin) DO UPDATE SET low = log_low, seen = now_at;
    DELETE FROM origins WHERE seen < forgotten_at;
    UPDATE floors SET floor = greatest(floor, (SELECT min(low) FROM origins));
    RETURN QUERY SELECT floor, was_new FROM floors;
END $$;
