-- Functions that insert jobs and take them back. Each function is one transaction when called.
-- `leveret_gate` is in step 6, `leveret_put` and `leveret_origin` are in step 8.
--
-- Every function that changes items passes the *gate* first: an advisory lock that all of them
-- share. Freezing a topic, or raising the floor of flush marks, takes the lock exclusively for a
-- moment. A function that passed the gate therefore sees the state of its topic as it stays until
-- the function has committed. A topic that is not `live` raises SQLSTATE {{TOPIC_STOPPED}}.
--
-- The time comes as an argument of each function.

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
