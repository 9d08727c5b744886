-- Appends prefetched jobs to their list. Jobs on the list that are less urgent than the first new job
-- are taken off, with all others.
--
-- KEYS   the list of prefetched jobs, the set of topics that have prefetched jobs, the mark of a dequeue
--        that found no prefetched job
-- ARGV   the member of the set, the priority of the first new job, the jobs, the most urgent first
--
-- Returns {whether the mark was set, job that was taken off, ...}.

local before = redis.call('LLEN', KEYS[1])
local last = redis.call('LINDEX', KEYS[1], -1)
redis.call('RPUSH', KEYS[1], unpack(ARGV, 3))
redis.call('SADD', KEYS[2], ARGV[1])
local is_awaited = redis.call('DEL', KEYS[3])
local priority = last and string.match(last, '^%w+ %d+ %d+ %d+ %d+ (-?%d+) ')
if not last or tonumber(priority) <= tonumber(ARGV[2]) then return {is_awaited} end
local old = redis.call('LRANGE', KEYS[1], 0, before - 1)
redis.call('LTRIM', KEYS[1], before, -1)
table.insert(old, 1, is_awaited)
return old
