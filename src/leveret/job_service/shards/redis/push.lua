-- Buffers all jobs of a batch, or none; no job has an idempotency key, as is usual.
--
-- KEYS   the set of buffers
-- ARGV   buffer_max; then for each topic its buffer, its member of the set of buffers, the number of
--        its jobs, the bytes of each job
--
-- Returns {'ok'}, or {'full', buffer} where a buffer has no room.

local at, most = 2, tonumber(ARGV[1])
while ARGV[at] do
    local jobs = tonumber(ARGV[at + 2])
    if redis.call('LLEN', ARGV[at]) + jobs > most then return {'full', ARGV[at]} end
    at = at + 3 + jobs
end
at = 2
while ARGV[at] do
    local last = at + 2 + tonumber(ARGV[at + 2])
    redis.call('RPUSH', ARGV[at], unpack(ARGV, at + 3, last))
    redis.call('SADD', KEYS[1], ARGV[at + 1])
    at = last + 1
end
return {'ok'}
