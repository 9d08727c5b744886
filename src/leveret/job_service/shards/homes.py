"""What a shard knows of the number of shards, so that it can refuse topics that are not its own.

The number that decides where a topic lives is `map_state.shards` on the first shard, not how many
databases a node was given. Nodes may have read it before it changed, so every shard judges by
itself: `homes` has its own number and how many there are, and a topic that no row of `topics`
names must hash to it. While the number changes, such a topic must hash to it by both numbers
(`next_shards`); all others wait. Of two shards never both take the same topic.

States of a topic on one shard, besides `live`, `frozen` and `moved`:

    arriving   copies of its jobs may be written; they do not count
    settling   nobody writes but who moves it; they do not count
"""

from typing import Final

from leveret.job_service.shards.sql.functions import GATE, STOPPED

HOMES: Final = f"""
ALTER TABLE topics DROP CONSTRAINT topics_state_check;
ALTER TABLE topics ADD CONSTRAINT topics_state_check
    CHECK (state IN ('live', 'frozen', 'moved', 'arriving', 'settling'));
CREATE TABLE map_state (shards INT NOT NULL, next_shards INT);
CREATE UNIQUE INDEX map_state_is_one ON map_state ((TRUE));
CREATE TABLE homes (shard INT NOT NULL, shards INT NOT NULL, next_shards INT);
CREATE UNIQUE INDEX homes_is_one ON homes ((TRUE));

-- FNV-1a of 32 bits, as nodes compute it.
CREATE FUNCTION leveret_slot(ns TEXT, tp TEXT) RETURNS BIGINT
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    data BYTEA := convert_to(ns || tp, 'UTF8');
    found BIGINT := 2166136261;
BEGIN
    FOR place IN 0 .. length(data) - 1 LOOP
        found := ((found # get_byte(data, place)) * 16777619) & 4294967295;
    END LOOP;
    RETURN found;
END $$;

CREATE OR REPLACE FUNCTION leveret_gate(ns TEXT, tp TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    found_state TEXT;
    home homes%ROWTYPE;
    slot BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
    SELECT state INTO found_state FROM topics WHERE namespace = ns AND topic = tp;
    IF NOT FOUND THEN
        SELECT * INTO home FROM homes;
        IF FOUND THEN
            slot := leveret_slot(ns, tp);
            IF slot % home.shards <> home.shard
                OR slot % coalesce(home.next_shards, home.shards) <> home.shard THEN
                found_state := 'elsewhere';
            END IF;
        END IF;
    END IF;
    IF found_state <> 'live' THEN
        RAISE EXCEPTION USING ERRCODE = '{STOPPED}', MESSAGE = found_state,
            DETAIL = jsonb_build_array(ns, tp)::text;
    END IF;
END $$;

-- As `leveret_undo` of two arguments, but only where the topics live.
CREATE FUNCTION leveret_undo(ids BIGINT[], slots INT[], namespaces TEXT[], topic_names TEXT[])
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE name RECORD;
BEGIN
    FOR name IN SELECT DISTINCT n, t FROM unnest(namespaces, topic_names) AS g(n, t) LOOP
        PERFORM leveret_gate(name.n, name.t);
    END LOOP;
    PERFORM leveret_undo(ids, slots);
END $$;

-- The round that is being served goes on to the turns that were handed out, where the topic lives.
CREATE OR REPLACE FUNCTION leveret_serve(ns TEXT, tp TEXT, priorities INT[], ranks BIGINT[])
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    INSERT INTO rounds AS r
        SELECT ns, tp, g.priority, max(g.rank) FROM unnest(priorities, ranks) AS g(priority, rank)
        GROUP BY g.priority ORDER BY g.priority
    ON CONFLICT (namespace, topic, priority) DO UPDATE SET rank = greatest(r.rank, excluded.rank);
END $$;

-- Raises unless a topic is in a state here, which it then keeps until the caller's commit.
CREATE FUNCTION leveret_require(ns TEXT, tp TEXT, wanted TEXT) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE found_state TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({GATE});
    SELECT state INTO found_state FROM topics WHERE namespace = ns AND topic = tp;
    IF found_state IS DISTINCT FROM wanted THEN
        RAISE EXCEPTION USING ERRCODE = '{STOPPED}', MESSAGE = coalesce(found_state, 'unknown'),
            DETAIL = jsonb_build_array(ns, tp)::text;
    END IF;
END $$;
"""
