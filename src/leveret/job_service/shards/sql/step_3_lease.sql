-- The function that notes a failure. `leveret_serve` is in step 6; the other functions that lease
-- jobs, or end leases that ran out, are in step 16.

CREATE FUNCTION leveret_note(failures JSONB, attempt INT, at TIMESTAMPTZ, error TEXT)
RETURNS JSONB LANGUAGE sql AS $$
    SELECT CASE WHEN jsonb_array_length(failures) < {{ERRORS_KEPT}} THEN failures
            ELSE failures - 0 END
        || jsonb_build_array(jsonb_build_object('attempt', attempt, 'time_ms',
            floor(extract(epoch FROM at) * 1000)::BIGINT, 'error', error))
$$;
