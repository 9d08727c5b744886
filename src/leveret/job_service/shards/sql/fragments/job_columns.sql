-- The columns of a job that is handed out.
(
    job_id BIGINT, job_token BIGINT, job_payload BYTEA, job_priority INT, job_attempts INT,
    job_after TIMESTAMPTZ, job_created TIMESTAMPTZ, job_until TIMESTAMPTZ, job_fair TEXT,
    job_rank BIGINT
)
