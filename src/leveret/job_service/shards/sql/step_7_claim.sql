-- Hands out jobs, limited by bytes as well as by jobs.
--
-- A thousand jobs with the largest payload would exceed the memory of a node, or its deadline. One
-- claim hands out at most {{BATCH_BYTES_MAX}} bytes of payloads, or one job more. Prefetched jobs
-- beyond that limit are ready again. The length of a payload is known without reading it.

-- Hands out the prefetched jobs `popped` first, then the most urgent ready jobs. Returns the jobs; a
-- row without an id holds the number of leases of the topic that had run out. Older databases have a
-- function that counts no bytes; this one replaces it.
CREATE OR REPLACE FUNCTION leveret_claim(
    ns TEXT, tp TEXT, popped BIGINT[], most INT, wanted_ms BIGINT, fence BIGINT,
    now_at TIMESTAMPTZ
) RETURNS TABLE {{job_columns}} LANGUAGE plpgsql AS $$
DECLARE
    settings topics%ROWTYPE;
    until_at TIMESTAMPTZ;
    room INT := most;
    room_bytes BIGINT := {{BATCH_BYTES_MAX}};
    fitting BIGINT[];
    handed INT;
BEGIN
    PERFORM leveret_gate(ns, tp);
    SELECT * INTO settings FROM topics WHERE namespace = ns AND topic = tp;
    until_at := now_at
        + coalesce(wanted_ms, settings.lease_ms, {{LEASE_MS_DEFAULT}}) * INTERVAL '1 ms';
    IF leveret_is_due(ns, tp, now_at) THEN
        SELECT sum(w.expired) INTO job_token FROM leveret_wake(ns, tp, now_at, 500) w;
        IF job_token > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
    IF settings.concurrency_max IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock({{GATE_LOCK}}, hashtext(ns || tp));
        {{make_popped_ready}};
        room := least(room, settings.concurrency_max - (SELECT count(*) FROM items
            WHERE namespace = ns AND topic = tp AND status = 'processing'));
    ELSIF cardinality(popped) > 0 THEN
        fitting := popped;
        IF cardinality(popped) > {{JOBS_THAT_ALWAYS_FIT}} THEN
            SELECT array_agg(f.id) INTO fitting FROM (
                SELECT i.id, octet_length(i.payload) AS bytes,
                    sum(octet_length(i.payload)) OVER (ORDER BY p.n) AS bytes_so_far
                FROM unnest(popped) WITH ORDINALITY AS p(id, n) JOIN items i ON i.id = p.id
                WHERE {{is_prefetched}}
            ) AS f WHERE f.bytes_so_far - f.bytes < room_bytes;
        END IF;
        RETURN QUERY {{hand_out}}
        WHERE i.id = ANY(fitting) AND {{is_prefetched}}
        {{returning_handed_out}};
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed < cardinality(popped) THEN
            {{make_popped_ready}};
        END IF;
        room := room - handed;
        IF room > 0 THEN
            room_bytes := room_bytes - (SELECT coalesce(sum(octet_length(payload)), 0)
                FROM items WHERE id = ANY(fitting));
        END IF;
    END IF;
    IF room > 0 AND room::BIGINT * {{PAYLOAD_BYTES_MAX}} <= room_bytes THEN
        RETURN QUERY {{hand_out}}
        WHERE i.id = ANY(ARRAY(SELECT r.id FROM ({{most_urgent_ready}}) AS r))
        {{returning_handed_out}};
    ELSIF room > 0 AND room_bytes > 0 THEN
        RETURN QUERY {{hand_out}}
        WHERE i.id = ANY(ARRAY(
            SELECT f.id FROM (
                SELECT r.id, r.bytes, sum(r.bytes) OVER (
                    ORDER BY r.priority, r.fair_rank, r.deliver_after, r.id) AS bytes_so_far
                FROM ({{most_urgent_ready}}) AS r
            ) AS f WHERE f.bytes_so_far - f.bytes < room_bytes))
        {{returning_handed_out}};
    END IF;
END $$;
