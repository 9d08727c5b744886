-- Whether item i is under a live lease that handle h names.
i.id = h.id AND {{is_of_topic}} AND i.status = 'processing'
        AND i.lease_expires_at > now_at AND (h.token IS NULL OR h.token = i.token)
