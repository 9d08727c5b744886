-- True if item i has a live lease, and handle h names that lease. A prefetched job that was handed out
-- may still be `leased`: its token proves that the worker has it. The terms `+ INTERVAL '0'` and `|| ''`
-- make the planner find the job by its id instead of by an index of leases.
i.id = h.id AND {{is_of_topic}} AND i.lease_expires_at + INTERVAL '0' > now_at
        AND (((i.status || '') = 'processing' AND (h.token IS NULL OR h.token = i.token))
            OR ((i.status || '') = 'leased' AND h.token = i.token))
