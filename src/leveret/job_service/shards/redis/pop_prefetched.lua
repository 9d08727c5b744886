-- Takes prefetched jobs off their list, and notes that they are handed out.
--
-- KEYS   the list of prefetched jobs, the list of jobs that were handed out
-- ARGV   how many at most, the time of the shard in ms, the wanted lease in ms or '', the highest
--        priority number that may be taken, the run of Redis, the number of the shard
--
-- Returns {how it ended, number of jobs that are left, job, ...}. It ends with 'ok', or at a job that is
-- not offered any more ('old'), for which the lease is too long ('lease_too_long'), or that is less
-- urgent than allowed ('not_urgent').

local most, now, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local ended, taken = 'ok', {}
while #taken < most do
    local job = redis.call('LINDEX', KEYS[1], 0)
    if not job then break end
    local run, shard, offered, usual, longest, priority, id, token = string.match(
        job, '^(%w+) (%d+) (%d+) (%d+) (%d+) (-?%d+) (%d+) (%d+) ')
    local lease = wanted or tonumber(usual)
    if run ~= ARGV[5] or shard ~= ARGV[6] or tonumber(offered) <= now then ended = 'old' break end
    if lease > tonumber(longest) then ended = 'lease_too_long' break end
    if tonumber(priority) > tonumber(ARGV[4]) then ended = 'not_urgent' break end
    redis.call('RPUSH', KEYS[2], string.format('%s %s %.0f', id, token, now + lease))
    redis.call('LPOP', KEYS[1])
    taken[#taken + 1] = job
end
return {ended, redis.call('LLEN', KEYS[1]), unpack(taken)}
