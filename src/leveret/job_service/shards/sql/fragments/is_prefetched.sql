-- Whether item i belongs to the topic and is prefetched under a live lease.
{{is_of_topic}} AND i.status = 'leased' AND i.lease_expires_at > now_at
