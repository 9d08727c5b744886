-- Acks jobs that were prefetched, then takes prefetched jobs off their list and notes that they are handed
-- out. If one of the acks must be asked of the shard, no job is taken.
--
-- KEYS   the list of prefetched jobs, the notes of jobs that were handed out, the leases of this minute, the
--        leases of the minute before, the notes of jobs that were acked, the set of topics with such notes
-- ARGV   how many at most, the time of the shard in ms, the wanted lease in ms or '', the highest
--        priority number that may be taken, the run of Redis, the number of the shard, the member of the
--        set, for how many ms a lease must still last, how many leases are kept, for how many ms, then
--        'id token' of each job to ack
--
-- Returns {how it ended, number of jobs that are left, outcomes, job, ...}. It ends with 'ok', or at a job
-- that is not offered any more ('old'), for which the lease is too long ('lease_too_long'), or that is less
-- urgent than allowed ('not_urgent'). The outcomes are a letter for each ack: done (d), unknown since it was
-- acked before (u), the shard must be asked (s).

local most, now, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local outcomes = {}
for number = 11, #ARGV do
    local id, token = string.match(ARGV[number], '^(%d+) (%d+)$')
    local place = KEYS[3]
    local lease = redis.call('HGET', place, id)
    if not lease then
        place = KEYS[4]
        lease = redis.call('HGET', place, id)
    end
    local outcome = 's'
    if lease == '' then
        outcome = 'u'
    elseif lease then
        local known, until_ms = string.match(lease, '^(%d+) (%d+)$')
        if known == token and tonumber(until_ms) - now >= tonumber(ARGV[8]) then
            redis.call('RPUSH', KEYS[5], ARGV[number])
            redis.call('SADD', KEYS[6], ARGV[7])
            redis.call('HSET', place, id, '')
            outcome = 'd'
        end
    end
    if outcome == 's' then most = 0 end
    outcomes[#outcomes + 1] = outcome
end
local ended, taken = 'ok', {}
local room = tonumber(ARGV[9])
if most > 0 then room = room - redis.call('HLEN', KEYS[3]) end
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
    if #taken <= room then
        redis.call('HSET', KEYS[3], id, string.format('%s %.0f', token, now + lease))
    end
end
if #taken > 0 then redis.call('PEXPIRE', KEYS[3], ARGV[10]) end
return {ended, redis.call('LLEN', KEYS[1]), table.concat(outcomes), unpack(taken)}
