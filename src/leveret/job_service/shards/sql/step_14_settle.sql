-- Functions that settle jobs: ack, nack, bury, extend, cancel, deliver now, redrive.

-- Handles of jobs with their positions. `ROWS 1` makes the planner look up each job by its id. With
-- the true number, a plan that is made for a small table would read the whole table later.
CREATE FUNCTION leveret_handles(ids BIGINT[], tokens BIGINT[])
RETURNS TABLE (id BIGINT, token BIGINT, n BIGINT) LANGUAGE sql ROWS 1 AS $$
    SELECT * FROM unnest(ids, tokens) WITH ORDINALITY
$$;

-- Notifies the nodes of a free lease, where the topic limits them.
CREATE OR REPLACE FUNCTION leveret_notify_limited(ns TEXT, tp TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM topics WHERE namespace = ns AND topic = tp
            AND concurrency_max IS NOT NULL) THEN
        PERFORM leveret_notify(ns, tp);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leveret_ack(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM leveret_handles(ids, tokens)),
    c AS (DELETE FROM items i USING h WHERE {{has_live_lease}} RETURNING h.n)
    SELECT h.n, {{settle_outcome}} FROM h ORDER BY h.n;
    PERFORM leveret_notify_limited(ns, tp);
END $$;

CREATE OR REPLACE FUNCTION leveret_nack(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], error TEXT, delay_ms BIGINT, draw FLOAT8,
    now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
DECLARE
    retries INT := {{RETRIES_DEFAULT}};
    backoff FLOAT8 := {{BACKOFF_MS_DEFAULT}};
    backoff_most FLOAT8 := {{BACKOFF_MS_MAX_DEFAULT}};
    share FLOAT8 := {{JITTER_DEFAULT}};
    settings topics%ROWTYPE;
BEGIN
    PERFORM leveret_gate(ns, tp);
    SELECT * INTO settings FROM topics WHERE namespace = ns AND topic = tp;
    IF FOUND THEN
        retries := settings.retries_max; backoff := settings.backoff_ms;
        backoff_most := settings.backoff_ms_max; share := settings.jitter;
    END IF;
    RETURN QUERY WITH h AS (SELECT * FROM leveret_handles(ids, tokens)),
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
        FROM d h WHERE {{has_live_lease}} RETURNING h.n
    )
    SELECT h.n, {{settle_outcome}} FROM h ORDER BY h.n;
    PERFORM leveret_notify(ns, tp);
END $$;

CREATE OR REPLACE FUNCTION leveret_extend(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], wanted_ms BIGINT, now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT, until_at TIMESTAMPTZ) LANGUAGE plpgsql AS $$
DECLARE
    lease BIGINT := wanted_ms;
    until_then TIMESTAMPTZ;
BEGIN
    PERFORM leveret_gate(ns, tp);
    IF lease IS NULL THEN
        SELECT lease_ms INTO lease FROM topics WHERE namespace = ns AND topic = tp;
    END IF;
    until_then := now_at + coalesce(lease, {{LEASE_MS_DEFAULT}}) * INTERVAL '1 ms';
    RETURN QUERY WITH h AS (SELECT * FROM leveret_handles(ids, tokens)),
    c AS (
        UPDATE items i SET lease_expires_at = until_then, status = 'processing' FROM h WHERE {{has_live_lease}}
        RETURNING h.n
    ), o AS (SELECT h.n, {{settle_outcome}} AS outcome FROM h)
    SELECT o.n, o.outcome, CASE WHEN o.outcome = 'done' THEN until_then END FROM o ORDER BY o.n;
END $$;

-- Does not cancel a prefetched job: it may be handed out at any moment. Nodes take the prefetched jobs
-- of the topic back first.
CREATE OR REPLACE FUNCTION leveret_cancel(ns TEXT, tp TEXT, ids BIGINT[])
RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM leveret_handles(ids, NULL)),
    c AS (
        DELETE FROM items i USING h WHERE i.id = h.id AND {{is_of_topic}}
            AND i.status IN ('ready', 'scheduled') RETURNING h.n
    )
    SELECT h.n, {{settle_outcome}} FROM h ORDER BY h.n;
END $$;

CREATE OR REPLACE FUNCTION leveret_deliver_now(ns TEXT, tp TEXT, ids BIGINT[], now_at TIMESTAMPTZ)
RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items i SET deliver_after = now_at
        WHERE i.id = ANY(ids) AND {{is_of_topic}} AND (i.status || '') = 'scheduled';
    PERFORM leveret_wake(ns, tp, now_at, cardinality(ids) + 500);
    RETURN QUERY WITH h AS (SELECT * FROM leveret_handles(ids, NULL)),
    c AS (
        SELECT h.n FROM h JOIN items i ON i.id = h.id AND {{is_of_topic}}
            AND i.status IN ('ready', 'leased')
    )
    SELECT h.n, {{settle_outcome}} FROM h ORDER BY h.n;
END $$;

-- Makes the dead jobs in `ids` ready again. Their attempts are reset, their errors kept.
CREATE OR REPLACE FUNCTION leveret_redrive(ns TEXT, tp TEXT, ids BIGINT[], now_at TIMESTAMPTZ)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE driven BIGINT;
BEGIN
    PERFORM leveret_gate(ns, tp);
    UPDATE items SET status = 'ready', attempts = 0, deliver_after = now_at
        WHERE namespace = ns AND topic = tp AND status = 'dead'
            AND id = ANY(ids);
    GET DIAGNOSTICS driven = ROW_COUNT;
    PERFORM leveret_notify(ns, tp);
    RETURN driven;
END $$;

-- Makes a job dead at once, however many retries are left.
CREATE OR REPLACE FUNCTION leveret_bury(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], error TEXT, now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM leveret_handles(ids, tokens)),
    c AS (
        UPDATE items i SET lease_expires_at = NULL, status = 'dead',
            failures = leveret_note(i.failures, i.attempts, now_at, error)
        FROM h WHERE {{has_live_lease}} RETURNING h.n
    )
    SELECT h.n, {{settle_outcome}} FROM h ORDER BY h.n;
    PERFORM leveret_notify_limited(ns, tp);
END $$;
