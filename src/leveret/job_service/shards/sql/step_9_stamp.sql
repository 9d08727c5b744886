-- Which shard of which cluster this database is. The first node writes it; a node that was given the
-- databases in another order, or those of another cluster, is refused. `secret` identifies the key of
-- tokens, on the first shard only.

CREATE TABLE stamps (cluster UUID NOT NULL, shard INT NOT NULL, secret TEXT);
CREATE UNIQUE INDEX stamps_is_one ON stamps ((TRUE));

-- A schedule that was written while another shard was down may still be there with an older version,
-- for another topic. The highest version counts.
ALTER TABLE schedules ADD COLUMN version BIGINT NOT NULL DEFAULT 0;

-- Forgets the ranks of fair keys that would not change the next turn of their keys, and those of keys
-- whose last rank has been served and that are older than an hour: such a key loses nothing, and goes
-- first once when it comes back. A topic that is being moved keeps its rows.
ALTER TABLE turns ADD COLUMN since TIMESTAMPTZ NOT NULL DEFAULT now();
CREATE FUNCTION leveret_forget_turns(now_at TIMESTAMPTZ, most INT) RETURNS BIGINT
LANGUAGE plpgsql AS $$
DECLARE forgotten BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({{GATE_LOCK}});
    DELETE FROM turns WHERE ctid = ANY(ARRAY(
        SELECT t.ctid FROM turns t JOIN rounds r ON r.namespace = t.namespace
            AND r.topic = t.topic AND r.priority = t.priority
        WHERE (t.rank < r.rank OR (t.rank = r.rank AND t.since < now_at - INTERVAL '1 hour'))
            AND NOT EXISTS (SELECT FROM topics x WHERE x.namespace = t.namespace
                AND x.topic = t.topic AND x.state <> 'live')
        LIMIT most));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
