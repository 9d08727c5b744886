-- Buffers all jobs of a batch, or none; some have idempotency keys.
--
-- KEYS   the set of buffers, the end of the time in which PostgreSQL may know keys that Redis lost
-- ARGV   buffer_max, the time in ms, '1' where PostgreSQL was asked for the keys; then for each job
--        its buffer, its member of the set of buffers, its idempotency key or '', how long the key
--        is kept in ms, its id in digits, its bytes
--
-- Returns {'ok', the id that each job's key stood for already, or ''}, {'full', buffer} where a
-- buffer has no room, or {'ask'} where PostgreSQL must be asked for the keys first.

local jobs, found, lengths = (#ARGV - 3) / 6, {}, {}
for i = 1, jobs do
    local at = 3 + (i - 1) * 6
    local buffer, key = ARGV[at + 1], ARGV[at + 3]
    found[i] = ''
    if key ~= '' then
        found[i] = redis.call('GET', key) or ''
        if found[i] == '' and ARGV[3] == '0' then
            local since = redis.call('GET', KEYS[2])
            if not since or tonumber(since) > tonumber(ARGV[2]) then return {'ask'} end
        end
    end
    if found[i] == '' then
        lengths[buffer] = (lengths[buffer] or redis.call('LLEN', buffer)) + 1
        if lengths[buffer] > tonumber(ARGV[1]) then return {'full', buffer} end
    end
end
for i = 1, jobs do
    local at = 3 + (i - 1) * 6
    if found[i] == '' then
        if ARGV[at + 3] ~= '' then
            redis.call('SET', ARGV[at + 3], ARGV[at + 5], 'PX', ARGV[at + 4])
        end
        redis.call('RPUSH', ARGV[at + 1], ARGV[at + 6])
        redis.call('SADD', KEYS[1], ARGV[at + 2])
    end
end
return {'ok', unpack(found)}
