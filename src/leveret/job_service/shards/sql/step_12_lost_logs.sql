-- Flush marks that a lost node may still need.
--
-- A node may return after any time, and replay its log. Marks keep jobs of the log that are done from
-- being inserted again. A log that has not reported for {{LOST_AFTER}} is *lost*: it can only hold ids
-- from `low` to `lost_high`. Marks of these ids are kept, and a job with such an id is inserted unless
-- it has a mark. All other marks go, as if the lost log did not exist.
--
-- A log that has returned holds the floor like any other until it has settled its old ids.
ALTER TABLE origins ADD COLUMN lost_high BIGINT;

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
    INSERT INTO origins AS o VALUES (log, log_low, now_at)
        ON CONFLICT (origin) DO UPDATE SET low = log_low, seen = now_at,
            lost_high = CASE WHEN o.lost_high >= log_low THEN o.lost_high END;
    DELETE FROM origins WHERE seen < forgotten_at;
    UPDATE origins SET lost_high = leveret_first_id(now_at + {{CLOCK_SKEW}})
        WHERE lost_high IS NULL AND seen < now_at - {{LOST_AFTER}};
    UPDATE floors SET floor = least(
        greatest(floor, (SELECT min(low) FROM origins
            WHERE lost_high IS NULL OR leveret_first_id(seen) > lost_high)),
        leveret_first_id(now_at - {{FLOOR_LAG}}));
    RETURN QUERY SELECT floor, was_new FROM floors;
END $$;

-- Deletes marks that no log needs, in the order of their ids. Returns how many.
CREATE FUNCTION leveret_forget_marks(most INT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    lowest BIGINT;
    kept RECORD;
    from_id BIGINT := 0;
    forgotten BIGINT := 0;
    deleted BIGINT;
BEGIN
    SELECT floor INTO lowest FROM floors;
    FOR kept IN
        SELECT low, lost_high AS high FROM origins WHERE lost_high IS NOT NULL
        UNION ALL SELECT lowest, lowest ORDER BY 1
    LOOP
        DELETE FROM flush_marks WHERE id = ANY(ARRAY(
            SELECT id FROM flush_marks WHERE id >= from_id AND id < least(kept.low, lowest)
            ORDER BY id LIMIT most - forgotten));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        forgotten := forgotten + deleted;
        from_id := greatest(from_id, kept.high + 1);
    END LOOP;
    RETURN forgotten;
END $$;
