-- Makes a job dead at once, however many retries are left.

CREATE FUNCTION leveret_bury(
    ns TEXT, tp TEXT, ids BIGINT[], tokens BIGINT[], error TEXT, now_at TIMESTAMPTZ
) RETURNS TABLE (n BIGINT, outcome TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    RETURN QUERY WITH h AS (SELECT * FROM unnest(ids, tokens) {{numbered_handles}}),
    c AS (
        UPDATE items i SET lease_expires_at = NULL, status = 'dead',
            failures = leveret_note(i.failures, i.attempts, now_at, error)
        FROM h WHERE {{has_live_lease}} RETURNING h.n
    )
    SELECT h.n, {{settle_outcome}} FROM h LEFT JOIN c ON c.n = h.n ORDER BY h.n;
END $$;
