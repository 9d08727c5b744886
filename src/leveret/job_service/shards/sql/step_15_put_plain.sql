-- Inserts jobs of one topic that have neither idempotency keys nor fair keys, as `leveret_put` (step
-- 10) does, at half the cost. `ids` rise. `afters` and `creations` are in milliseconds; a job without
-- a time in `afters` is ready when it comes.
--
-- Nearly always, all jobs are new. So they are inserted as if they were, without a comparison of each
-- job. Where one of them is known, or its log counted as lost, nothing of that stays, and `leveret_put`
-- does the work.
CREATE FUNCTION leveret_put_plain(
    ns TEXT, tp TEXT, topic_slot INT, ids BIGINT[], priorities INT[], afters BIGINT[],
    creations BIGINT[], payloads BYTEA[], now_at TIMESTAMPTZ, kept_until TIMESTAMPTZ,
    is_forced BOOLEAN
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    epoch CONSTANT TIMESTAMPTZ := 'epoch';
    ms CONSTANT INTERVAL := '1 ms';
    jobs CONSTANT INT[] := ARRAY[cardinality(ids)];
BEGIN
    PERFORM leveret_gate(ns, tp);
    IF is_forced OR ids[1] < (SELECT floor FROM floors) THEN
        RAISE unique_violation;
    END IF;
    INSERT INTO flush_marks (id, slot) SELECT g.id, topic_slot FROM unnest(ids) AS g(id);
    INSERT INTO items (id, namespace, topic, status, priority, payload, deliver_after, created_at)
    SELECT g.id, ns, tp, CASE WHEN epoch + g.after * ms > now_at THEN 'scheduled' ELSE 'ready' END,
        g.priority, g.payload,
        coalesce(epoch + g.after * ms, least(epoch + g.created * ms, now_at)),
        epoch + g.created * ms
    FROM unnest(ids, priorities, afters, creations, payloads)
        AS g(id, priority, after, created, payload);
    IF EXISTS (SELECT FROM rounds r WHERE r.namespace = ns AND r.topic = tp) THEN
        PERFORM leveret_rank(ns, tp, ids);
    END IF;
    IF EXISTS (SELECT FROM unnest(afters) AS g(after)
            WHERE g.after IS NULL OR epoch + g.after * ms <= now_at) THEN
        PERFORM leveret_notify(ns, tp);
    END IF;
EXCEPTION WHEN unique_violation THEN
    PERFORM leveret_put(ids, array_fill(ns, jobs), array_fill(tp, jobs),
        array_fill(topic_slot, jobs), priorities,
        ARRAY(SELECT epoch + g.after * ms
            FROM unnest(afters) WITH ORDINALITY AS g(after, n) ORDER BY g.n),
        ARRAY(SELECT epoch + g.created * ms
            FROM unnest(creations) WITH ORDINALITY AS g(created, n) ORDER BY g.n),
        array_fill(NULL::TEXT, jobs), array_fill(NULL::TEXT, jobs), payloads, now_at, kept_until,
        is_forced);
END $$;
