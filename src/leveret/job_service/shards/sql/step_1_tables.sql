-- The tables of a shard.
--
-- A row of `items` is a job. Its status is
--
--     scheduled    not due yet; `ready` from its `deliver_after` on
--     ready        can be leased
--     leased       leased ahead under `token` (prefetched), or handed out a moment ago (step 13)
--     processing   handed out under `token`, until `lease_expires_at`
--     dead         its retries are used up
--
-- `flush_marks` has the id of every job that came to this shard or was taken back. The mark is
-- written in the transaction that inserts or removes the job, so that no replay inserts it twice.
-- An id carries its node and rises with the node's log; it is therefore the mark of (node,
-- sequence). Marks below `floors.floor` are deleted: every log that could replay such an id has
-- reported (`origins.low`) that the id is settled.

CREATE TABLE items (
    id BIGINT PRIMARY KEY,
    namespace TEXT NOT NULL,
    topic TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'ready'
        CHECK (status IN ('scheduled', 'ready', 'leased', 'processing', 'dead')),
    priority INT NOT NULL DEFAULT 0,
    payload BYTEA NOT NULL,
    deliver_after TIMESTAMPTZ NOT NULL,
    lease_expires_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    idempotency_key TEXT,
    fair_key TEXT,
    fair_rank BIGINT NOT NULL DEFAULT 0,
    attempts INT NOT NULL DEFAULT 0,
    token BIGINT NOT NULL DEFAULT 0,
    failures JSONB NOT NULL DEFAULT '[]'
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX items_claim ON items
    (namespace, topic, status, priority, fair_rank, deliver_after, id);
CREATE UNIQUE INDEX items_key ON items (namespace, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX items_due ON items (deliver_after) WHERE status = 'scheduled';
CREATE INDEX items_leases ON items (lease_expires_at) WHERE status IN ('leased', 'processing');
CREATE INDEX items_dead ON items (namespace, topic, id) WHERE status = 'dead';

CREATE TABLE topics (
    namespace TEXT NOT NULL,
    topic TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'frozen', 'moved')),
    retries_max INT NOT NULL,
    backoff_ms BIGINT NOT NULL,
    backoff_ms_max BIGINT NOT NULL,
    jitter FLOAT8 NOT NULL,
    lease_ms BIGINT NOT NULL,
    concurrency_max INT,
    PRIMARY KEY (namespace, topic)
);
CREATE TABLE shard_map (
    namespace TEXT NOT NULL,
    topic TEXT NOT NULL,
    shard INT NOT NULL,
    PRIMARY KEY (namespace, topic)
);
CREATE TABLE keys (
    namespace TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    id BIGINT NOT NULL,
    topic TEXT NOT NULL,
    kept_until TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (namespace, idempotency_key)
);
CREATE INDEX keys_until ON keys (kept_until);
CREATE TABLE turns (
    namespace TEXT NOT NULL,
    topic TEXT NOT NULL,
    priority INT NOT NULL,
    fair_key TEXT NOT NULL,
    rank BIGINT NOT NULL,
    PRIMARY KEY (namespace, topic, priority, fair_key)
);
CREATE TABLE rounds (
    namespace TEXT NOT NULL,
    topic TEXT NOT NULL,
    priority INT NOT NULL,
    rank BIGINT NOT NULL,
    PRIMARY KEY (namespace, topic, priority)
);
CREATE TABLE flush_marks (
    id BIGINT PRIMARY KEY,
    slot INT NOT NULL,
    is_undone BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE TABLE origins (
    origin UUID PRIMARY KEY,
    low BIGINT NOT NULL,
    seen TIMESTAMPTZ NOT NULL
);
CREATE TABLE floors (floor BIGINT NOT NULL);
INSERT INTO floors VALUES (0);
CREATE TABLE node_ids (
    node INT PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE schedules (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    topic TEXT NOT NULL,
    cron TEXT NOT NULL,
    timezone TEXT NOT NULL,
    payload BYTEA NOT NULL,
    priority INT NOT NULL,
    is_paused BOOLEAN NOT NULL,
    next_at TIMESTAMPTZ,
    PRIMARY KEY (namespace, name)
);
CREATE INDEX schedules_next ON schedules (next_at) WHERE NOT is_paused;
