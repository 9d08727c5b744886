-- Leases item i to a worker under a new token.
UPDATE items i SET status = 'processing', attempts = i.attempts + 1,
            token = greatest(i.token + 1, fence), lease_expires_at = until_at
