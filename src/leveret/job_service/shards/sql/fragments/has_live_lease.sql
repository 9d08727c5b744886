-- Whether item i is under a live lease that handle h names. Written so that the planner finds the job
-- by its id, and not by an index of leases.
i.id = h.id AND {{is_of_topic}} AND (i.status || '') = 'processing'
        AND i.lease_expires_at + INTERVAL '0' > now_at AND (h.token IS NULL OR h.token = i.token)
