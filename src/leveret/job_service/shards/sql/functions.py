"""What a shard does in one round trip: functions in PL/pgSQL, each one transaction when called.

Every function that changes items passes the *gate* first: an advisory lock that all of them share.
Who freezes a topic or moves the floor of flush marks takes it alone, for a moment; a function that
passed it therefore sees the state of its topic as it stays until the function has committed. A
topic that is not `live` raises SQLSTATE LV001.

Times come as arguments: a shard decides nothing by its own clock.
"""

from typing import Final

from leveret.job_model import (
    BACKOFF_MS_DEFAULT,
    BACKOFF_MS_MAX_DEFAULT,
    ERRORS_KEPT,
    LEASE_MS_DEFAULT,
    RETRIES_DEFAULT,
)

GATE: Final = 0x4C56_0002  # advisory: shared by what changes items
STOPPED: Final = "LV001"  # SQLSTATE: the topic is being moved, or was
JITTER_DEFAULT: Final = 0.2
LOOK: Final = 100  # jobs that are due, of all topics, among which a claim looks for its own
# A job is found by its id; written so, no planner looks through its whole topic for it.
ITS: Final = "(i.namespace || '') = ns AND (i.topic || '') = tp"

PUTTING: Final = f"""
CREATE FUNCTION leveret_gate(ns TEXT, tp TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE found_state TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
    SELECT state INTO found_state FROM topics WHERE namespace = ns AND topic = tp;
    IF found_state <> 'live' THEN
        RAISE EXCEPTION USING ERRCODE = '{STOPPED}', MESSAGE = found_state,
            DETAIL = jsonb_build_array(ns, tp)::text;
    END IF;
END $$;

-- Gives the ready jobs among `ids` their turns: each key's next one, but none before the round that
-- is being served, so that a key that was idle does not catch up on what it did not use.
CREATE FUNCTION leveret_rank(ns TEXT, tp TEXT, ids BIGINT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    job RECORD;
    served BIGINT;
    given BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock({GATE}, hashtext(ns || tp));
    FOR job IN
        SELECT i.id, i.priority, coalesce(i.fair_key, '') AS fair_key FROM items i
        WHERE i.id = ANY(ids) AND {ITS} AND i.status = 'ready' AND i.fair_rank = 0
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

-- Inserts jobs that no flush mark knows. Answers, for those whose idempotency key another job has,
-- the id of that one.
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

-- Takes jobs back: whoever comes later with them finds their marks.
CREATE FUNCTION leveret_undo(ids BIGINT[], slots INT[]) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
    INSERT INTO flush_marks AS m (id, slot, is_undone)
        SELECT g.id, g.slot, TRUE FROM unnest(ids, slots) AS g(id, slot) ORDER BY g.id
        ON CONFLICT (id) DO UPDATE SET is_undone = TRUE;
    DELETE FROM keys k USING items i WHERE i.id = ANY(ids) AND k.id = i.id
        AND k.namespace = i.namespace AND k.idempotency_key = i.idempotency_key;
    DELETE FROM items WHERE id = ANY(ids);
END $$;

-- A log tells which of its ids may still come. Answers the floor, and whether the log is new here.
CREATE FUNCTION leveret_origin(
    log UUID, log_low BIGINT, now_at TIMESTAMPTZ, forgotten_at TIMESTAMPTZ
) RETURNS TABLE (floor_id BIGINT, is_new BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE was_new BOOLEAN;
BEGIN
    PERFORM pg_advisory_xact_lock({GATE});
    SELECT NOT EXISTS (SELECT FROM origins WHERE origin = log) INTO was_new;
    INSERT INTO origins VALUES (log, log_low, now_at)
        ON CONFLICT (origin) DO UPDATE SET low = log_low, seen = now_at;
    DELETE FROM origins WHERE seen < forgotten_at;
    UPDATE floors SET floor = greatest(floor, (SELECT min(low) FROM origins));
    RETURN QUERY SELECT floor, was_new FROM floors;
END $$;
"""

RETURNED: Final = """(
    job_id BIGINT, job_token BIGINT, job_payload BYTEA, job_priority INT, job_attempts INT,
    job_after TIMESTAMPTZ, job_created TIMESTAMPTZ, job_until TIMESTAMPTZ, job_fair TEXT,
    job_rank BIGINT
)"""

LEASING: Final = f"""
CREATE FUNCTION leveret_note(failures JSONB, attempt INT, at TIMESTAMPTZ, error TEXT)
RETURNS JSONB LANGUAGE sql AS $$
    SELECT CASE WHEN jsonb_array_length(failures) < {ERRORS_KEPT} THEN failures
            ELSE failures - 0 END
        || jsonb_build_array(jsonb_build_object('attempt', attempt, 'time_ms',
            floor(extract(epoch FROM at) * 1000)::BIGINT, 'error', error))
$$;

-- What has fallen due: scheduled jobs are ready, prefetched ones too, and leases that ran out are
-- failures. Of one topic, or of all. Answers the topics with how many leases ran out in each.
CREATE FUNCTION leveret_wake(ns TEXT, tp TEXT, now_at TIMESTAMPTZ, most INT)
RETURNS TABLE (woken_ns TEXT, woken_tp TEXT, expired BIGINT) LANGUAGE plpgsql AS $$
DECLARE
    name RECORD;
    woken BIGINT[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
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
                    AND t.topic = i.topic), {RETRIES_DEFAULT}) THEN 'dead' ELSE 'ready' END,
            failures = CASE WHEN due.status = 'processing' THEN leveret_note(
                i.failures, i.attempts, now_at, 'the lease ran out') ELSE i.failures END
        FROM due WHERE i.id = due.id
        RETURNING i.namespace, i.topic, (due.status = 'processing')::INT AS ran_out
    )
    SELECT b.namespace, b.topic, sum(b.ran_out) FROM back b GROUP BY 1, 2;
END $$;

-- Looks at what has been due for longest, of whatever topic: by the indexes of times alone.
CREATE FUNCTION leveret_is_due(ns TEXT, tp TEXT, now_at TIMESTAMPTZ) RETURNS BOOLEAN
LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT FROM (SELECT namespace, topic FROM items WHERE status = 'scheduled'
            AND deliver_after <= now_at ORDER BY deliver_after LIMIT {LOOK}) AS d
        WHERE d.namespace = ns AND d.topic = tp
    ) OR EXISTS (
        SELECT FROM (SELECT namespace, topic FROM items WHERE status IN ('leased', 'processing')
            AND lease_expires_at <= now_at ORDER BY lease_expires_at LIMIT {LOOK}) AS d
        WHERE d.namespace = ns AND d.topic = tp
    )
$$;

-- The round that is being served goes on to the turns that were handed out.
CREATE FUNCTION leveret_serve(ns TEXT, tp TEXT, priorities INT[], ranks BIGINT[])
RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO rounds AS r
        SELECT ns, tp, g.priority, max(g.rank) FROM unnest(priorities, ranks) AS g(priority, rank)
        GROUP BY g.priority ORDER BY g.priority
    ON CONFLICT (namespace, topic, priority) DO UPDATE SET rank = greatest(r.rank, excluded.rank)
$$;

-- Leases jobs ahead, for a list in Redis; none of a topic whose leases are counted.
CREATE FUNCTION leveret_prefetch(
    ns TEXT, tp TEXT, most INT, now_at TIMESTAMPTZ, until_at TIMESTAMPTZ
) RETURNS TABLE {RETURNED} LANGUAGE plpgsql AS $$
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

-- Prefetched jobs that nobody was handed are ready again.
CREATE FUNCTION leveret_take_back(ns TEXT, tp TEXT, ids BIGINT[]) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items i SET status = 'ready', lease_expires_at = NULL
        WHERE i.id = ANY(ids) AND {ITS} AND i.status = 'leased';
END $$;
"""

_HANDLES: Final = """WITH ORDINALITY AS h(id, token, n)"""
_OUTCOME: Final = f"""CASE WHEN c.n IS NOT NULL THEN 'done'
        WHEN EXISTS (SELECT FROM items i WHERE i.id = h.id AND {ITS}
            AND i.status <> 'dead') THEN 'stale' ELSE 'unknown' END"""
_ALIVE: Final = f"""i.id = h.id AND {ITS} AND i.status = 'processing'
        AND i.lease_expires_at > now_at AND (h.token IS NULL OR h.token = i.token)"""

SETTLING: Final = f"""
CREATE FUNCTION leveret_ack(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids, tokens) {_HANDLES}),
    c AS (DELETE FROM items i USING h WHERE {_ALIVE} RETURNING h.n)
    SELECT h.n, {_OUTCOME} FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;

CREATE FUNCTION leveret_nack(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], error TEXT, delay_ms BIGINT, draw FLOAT8,
    now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
DECLARE
    retries INT := {RETRIES_DEFAULT};
    backoff FLOAT8 := {BACKOFF_MS_DEFAULT};
    backoff_most FLOAT8 := {BACKOFF_MS_MAX_DEFAULT};
    share FLOAT8 := {JITTER_DEFAULT};
    settings topics%ROWTYPE;
BEGIN
    PERFORM leveret_gate(ns, tp);
    SELECT * INTO settings FROM topics WHERE namespace = ns AND topic = tp;
    IF FOUND THEN
        retries := settings.retries_max; backoff := settings.backoff_ms;
        backoff_most := settings.backoff_ms_max; share := settings.jitter;
    END IF;
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids, tokens) {_HANDLES}),
    d AS (
        SELECT h.id, h.token, h.n, now_at + coalesce(delay_ms, floor(least(
            backoff * power(2, least(i.attempts - 1, 60)), backoff_most)
            * (1 - share * draw))) * INTERVAL '1 ms' AS at
        FROM h JOIN items i ON i.id = h.id
    ),
    c AS (
        UPDATE items i SET lease_expires_at = NULL,
            status = CASE WHEN i.attempts > retries THEN 'dead'
                WHEN h.at > now_at THEN 'scheduled' ELSE 'ready' END,
            deliver_after = CASE WHEN i.attempts > retries THEN i.deliver_after ELSE h.at END,
            failures = leveret_note(i.failures, i.attempts, now_at, error)
        FROM d h WHERE {_ALIVE} RETURNING h.n
    )
    SELECT h.n, {_OUTCOME} FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;

CREATE FUNCTION leveret_extend(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], wanted_ms BIGINT, now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT, until_at TIMESTAMPTZ) LANGUAGE plpgsql AS $$
DECLARE lease BIGINT := wanted_ms;
BEGIN
    PERFORM leveret_gate(ns, tp);
    IF lease IS NULL THEN
        SELECT lease_ms INTO lease FROM topics WHERE namespace = ns AND topic = tp;
    END IF;
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids, tokens) {_HANDLES}),
    c AS (
        UPDATE items i SET lease_expires_at =
            now_at + coalesce(lease, {LEASE_MS_DEFAULT}) * INTERVAL '1 ms'
        FROM h WHERE {_ALIVE} RETURNING h.n, i.lease_expires_at
    )
    SELECT h.n, {_OUTCOME}, c.lease_expires_at FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;

CREATE FUNCTION leveret_cancel(ns TEXT, tp TEXT, ids BIGINT[])
RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids) WITH ORDINALITY AS h(id, n)),
    c AS (
        DELETE FROM items i USING h WHERE i.id = h.id AND {ITS}
            AND i.status IN ('ready', 'scheduled', 'leased') RETURNING h.n
    )
    SELECT h.n, {_OUTCOME} FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;

CREATE FUNCTION leveret_deliver_now(ns TEXT, tp TEXT, ids BIGINT[], now_at TIMESTAMPTZ)
RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items i SET deliver_after = now_at
        WHERE i.id = ANY(ids) AND {ITS} AND i.status = 'scheduled';
    PERFORM leveret_wake(ns, tp, now_at, cardinality(ids) + 500);
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids) WITH ORDINALITY AS h(id, n)),
    c AS (
        SELECT h.n FROM h JOIN items i ON i.id = h.id AND {ITS}
            AND i.status IN ('ready', 'leased')
    )
    SELECT h.n, {_OUTCOME} FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;

-- Dead jobs, all or those of `ids`, are ready again as if they were new, their errors kept.
CREATE FUNCTION leveret_redrive(ns TEXT, tp TEXT, ids BIGINT[], now_at TIMESTAMPTZ)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE driven BIGINT;
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items SET status = 'ready', attempts = 0, deliver_after = now_at
        WHERE namespace = ns AND topic = tp AND status = 'dead'
            AND (ids IS NULL OR id = ANY(ids));
    GET DIAGNOSTICS driven = ROW_COUNT;
    RETURN driven;
END $$;
"""

# Failed for good, however many retries are left.
BURYING: Final = f"""
CREATE FUNCTION leveret_bury(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], error TEXT, now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids, tokens) {_HANDLES}),
    c AS (
        UPDATE items i SET lease_expires_at = NULL, status = 'dead',
            failures = leveret_note(i.failures, i.attempts, now_at, error)
        FROM h WHERE {_ALIVE} RETURNING h.n
    )
    SELECT h.n, {_OUTCOME} FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;
"""
