-- True if handle h names the live lease of item i. A prefetched job that a worker holds may still be
-- `leased`; the worker that has its token holds it. The expressions `|| ''` and `+ INTERVAL '0'` make
-- the planner find the job by its id, and not by an index of leases.
i.id = h.id AND {{is_of_topic}} AND i.lease_expires_at + INTERVAL '0' > now_at
        AND (((i.status || '') = 'processing' AND (h.token IS NULL OR h.token = i.token))
            OR ((i.status || '') = 'leased' AND h.token = i.token))
