-- The most urgent ready jobs that no other claim holds.
                    SELECT j.id, j.priority, j.fair_rank, j.deliver_after,
                        octet_length(j.payload) AS bytes
                    FROM items j
                    WHERE j.namespace = ns AND j.topic = tp AND j.status = 'ready'
                    ORDER BY j.priority, j.fair_rank, j.deliver_after, j.id
                    LIMIT room FOR UPDATE SKIP LOCKED
