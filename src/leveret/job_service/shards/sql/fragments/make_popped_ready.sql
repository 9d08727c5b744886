-- Makes the popped jobs that were not handed out ready again.
UPDATE items i SET status = 'ready', lease_expires_at = NULL
            WHERE i.id = ANY(popped) AND {{is_of_topic}} AND i.status = 'leased'
