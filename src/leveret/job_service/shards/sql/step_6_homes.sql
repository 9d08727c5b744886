-- A shard refuses topics that do not belong to it.
--
-- `map_state.shards` on the first shard is the number of shards; how many databases a node was given
-- does not count. A node may have read the number before it changed, so every shard decides by
-- itself: `homes` holds its own index and the number of shards. A topic without a row in `topics`
-- must hash to this shard. While the number changes, such a topic must hash to this shard by both
-- numbers (`next_shards`); all others wait. Two shards therefore never both take the same topic.
--
-- States of a topic on one shard, besides `live`, `frozen` and `moved`:
--
--     arriving   copies of its jobs may be written; they do not count
--     settling   only the mover writes; the copies do not count

ALTER TABLE topics DROP CONSTRAINT topics_state_check;
ALTER TABLE topics ADD CONSTRAINT topics_state_check
    CHECK (state IN ('live', 'frozen', 'moved', 'arriving', 'settling'));
CREATE TABLE map_state (shards INT NOT NULL, next_shards INT);
CREATE UNIQUE INDEX map_state_is_one ON map_state ((TRUE));
CREATE TABLE homes (shard INT NOT NULL, shards INT NOT NULL, next_shards INT);
CREATE UNIQUE INDEX homes_is_one ON homes ((TRUE));

-- FNV-1a of 32 bits, as `routing.py` computes it.
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

-- Raises unless the topic is live on this shard. It stays live here until the caller commits.
CREATE OR REPLACE FUNCTION leveret_gate(ns TEXT, tp TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    found_state TEXT;
    home homes%ROWTYPE;
    slot BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({{GATE_LOCK}});
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
        RAISE EXCEPTION USING ERRCODE = '{{TOPIC_STOPPED}}', MESSAGE = found_state,
            DETAIL = jsonb_build_array(ns, tp)::text;
    END IF;
END $$;

-- Takes jobs back like `leveret_undo` of two arguments, but only where their topics live.
CREATE FUNCTION leveret_undo(ids BIGINT[], slots INT[], namespaces TEXT[], topic_names TEXT[])
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE name RECORD;
BEGIN
    FOR name IN SELECT DISTINCT n, t FROM unnest(namespaces, topic_names) AS g(n, t) LOOP
        PERFORM leveret_gate(name.n, name.t);
    END LOOP;
    PERFORM leveret_undo(ids, slots);
END $$;

-- Advances the round that is being served to the ranks that were handed out, where the topic lives.
CREATE OR REPLACE FUNCTION leveret_serve(ns TEXT, tp TEXT, priorities INT[], ranks BIGINT[])
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leveret_gate(ns, tp);
    INSERT INTO rounds AS r
        SELECT ns, tp, g.priority, max(g.rank) FROM unnest(priorities, ranks) AS g(priority, rank)
        GROUP BY g.priority ORDER BY g.priority
    ON CONFLICT (namespace, topic, priority) DO UPDATE SET rank = greatest(r.rank, excluded.rank);
END $$;

-- Raises unless the topic has the wanted state here. It keeps that state until the caller commits.
CREATE FUNCTION leveret_require(ns TEXT, tp TEXT, wanted TEXT) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE found_state TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({{GATE_LOCK}});
    SELECT state INTO found_state FROM topics WHERE namespace = ns AND topic = tp;
    IF found_state IS DISTINCT FROM wanted THEN
        RAISE EXCEPTION USING ERRCODE = '{{TOPIC_STOPPED}}', MESSAGE = coalesce(found_state, 'unknown'),
            DETAIL = jsonb_build_array(ns, tp)::text;
    END IF;
END $$;
