-- Buffers one job without an idempotency key that is due now. It asks whether a node may look for jobs
-- of the topic.
--
-- KEYS   the set of buffers, the buffer, the mark of a dequeue that found no prefetched job, the list of
--        prefetched jobs
-- ARGV   buffer_max, the member of the set of buffers, the bytes of the job
--
-- Returns {'ok', 'quiet'} if no other node is known to need the job soon, {'ok'} if one may, or
-- {'full', buffer} if the buffer has no room.
--
-- A push that sees the mark '1' makes it '2': its job will wake the dequeues that wait. A dequeue that
-- finds no job then sets the mark to '1' again.

local jobs = redis.call('LLEN', KEYS[2])
if jobs >= tonumber(ARGV[1]) then return {'full', KEYS[2]} end
redis.call('RPUSH', KEYS[2], ARGV[3])
if jobs == 0 then redis.call('SADD', KEYS[1], ARGV[2]) end
if redis.call('GET', KEYS[3]) == '1' then
    redis.call('SETRANGE', KEYS[3], 0, '2') -- it keeps the time at which the mark expires
    return {'ok'}
end
if redis.call('EXISTS', KEYS[4]) == 1 then return {'ok'} end
return {'ok', 'quiet'}
