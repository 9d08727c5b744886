-- A shard judges leases, due times and idempotency keys by its own clock.
--
-- `now_at` is the shard's `now()`, except in tests that move the clock by hand. A job without
-- `deliver_after` has no time in `afters`: it is ready when it comes, however wrong the clock of its
-- node is.

-- `keys` alone decides which job a key stands for. Its rows can be taken over when they are too old,
-- also while a job with the key exists.
DROP INDEX items_key;

-- Inserts jobs that have no flush mark. Where another job has the same idempotency key, returns the
-- id of that job. A key is free again from {{KEY_FREE_EARLY}} before `kept_until` on: a node whose
-- clock is ahead may have told its client already that the key is free.
CREATE OR REPLACE FUNCTION leveret_put(
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
        SELECT g.id, g.ns, g.tp, g.slot, g.priority, g.created, g.key, g.fair, g.payload,
            coalesce(g.after, least(g.created, now_at)) AS after
        FROM unnest(ids, namespaces, topic_names, slots, priorities, afters, creations,
            key_names, fair_keys, payloads)
            AS g(id, ns, tp, slot, priority, after, created, key, fair, payload)
    ), fresh AS (
        INSERT INTO flush_marks (id, slot)
        SELECT g.id, g.slot FROM given g WHERE g.id >= lowest OR is_forced ORDER BY g.id
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

-- The lowest id of a time.
CREATE FUNCTION leveret_first_id(at TIMESTAMPTZ) RETURNS BIGINT LANGUAGE sql AS $$
    SELECT greatest(floor(extract(epoch FROM at) * 1000)::BIGINT - {{EPOCH_MS}}, 0) << 22
$$;

-- A log reports the lowest of its ids that may still come. Returns the floor, and whether the log is
-- new here. The floor is never ahead of the shard's clock, whatever the clocks of nodes show: a floor
-- that a wrong clock has raised comes down again.
CREATE OR REPLACE FUNCTION leveret_origin(
    log UUID, log_low BIGINT, now_at TIMESTAMPTZ, forgotten_at TIMESTAMPTZ
) RETURNS TABLE (floor_id BIGINT, is_new BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE was_new BOOLEAN;
BEGIN
    PERFORM pg_advisory_xact_lock({{GATE_LOCK}});
    SELECT NOT EXISTS (SELECT FROM origins WHERE origin = log) INTO was_new;
    INSERT INTO origins VALUES (log, log_low, now_at)
        ON CONFLICT (origin) DO UPDATE SET low = log_low, seen = now_at;
    DELETE FROM origins WHERE seen < forgotten_at;
    UPDATE floors SET floor = least(greatest(floor, (SELECT min(low) FROM origins)),
        leveret_first_id(now_at - {{FLOOR_LAG}}));
    RETURN QUERY SELECT floor, was_new FROM floors;
END $$;
