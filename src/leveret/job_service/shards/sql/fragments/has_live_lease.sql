-- Whether item i is under a live lease that handle h names. A prefetched job that was handed out may
-- still be `leased`: whoever has its token has it. Written so that the planner finds the job by its id,
-- and not by an index of leases.
i.id = h.id AND {{is_of_topic}} AND i.lease_expires_at + INTERVAL '0' > now_at
        AND (((i.status || '') = 'processing' AND (h.token IS NULL OR h.token = i.token))
            OR ((i.status || '') = 'leased' AND h.token = i.token))
