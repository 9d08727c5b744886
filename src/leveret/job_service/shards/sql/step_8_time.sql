-- A shard judges leases, due times and idempotency keys by its own clock.
--
-- `now_at` is the shard's `now()`, except in tests that move the clock by hand. A job without
-- `deliver_after` has no time in `afters`: it is ready when it comes, however wrong the clock of its
-- node is.

-- `keys` alone decides which job a key stands for. Its rows can be taken over when they are too old,
-- also while a job with the key exists.
DROP INDEX items_key;

-- `leveret_put` is in step 10.

-- The lowest id of a time.
CREATE FUNCTION leveret_first_id(at TIMESTAMPTZ) RETURNS BIGINT LANGUAGE sql AS $$
    SELECT greatest(floor(extract(epoch FROM at) * 1000)::BIGINT - {{EPOCH_MS}}, 0) << 22
$$;
