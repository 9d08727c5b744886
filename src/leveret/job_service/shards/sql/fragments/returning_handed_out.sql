-- The values of the columns in job_columns.sql.
RETURNING i.id, i.token, i.payload, i.priority, i.attempts,
            i.deliver_after, i.created_at, i.lease_expires_at, i.fair_key, i.fair_rank
