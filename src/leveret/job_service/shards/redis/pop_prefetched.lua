-- Acks jobs that were prefetched, then takes prefetched jobs off their list and notes that they are handed
-- out. If there are acks and jobs are wanted, either all acks are answered and a job is taken, or nothing is
-- changed.
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
-- acked before (u), the shard must be asked (s). There are none if nothing was changed.

local most, now, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local ended, is_asked = 'ok', false
local outcomes, places, ids = {}, {}, {}
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
        if known == token and tonumber(until_ms) - now >= tonumber(ARGV[8]) then outcome = 'd' end
    end
    if outcome == 's' then is_asked = true end
    outcomes[number - 10], places[number - 10], ids[number - 10] = outcome, place, id
end

-- Returns the first job of the list with its id, its token and its lease; nothing if it may not be taken.
local function offered()
    local job = redis.call('LINDEX', KEYS[1], 0)
    if not job then return end
    local run, shard, until_ms, usual, longest, priority, id, token = string.match(
        job, '^(%w+) (%d+) (%d+) (%d+) (%d+) (-?%d+) (%d+) (%d+) ')
    local lease = wanted or tonumber(usual)
    if run ~= ARGV[5] or shard ~= ARGV[6] or tonumber(until_ms) <= now then ended = 'old' return end
    if lease > tonumber(longest) then ended = 'lease_too_long' return end
    if tonumber(priority) > tonumber(ARGV[4]) then ended = 'not_urgent' return end
    return job, id, token, lease
end

local job, id, token, lease
if most > 0 then
    job, id, token, lease = offered()
    if #outcomes > 0 and (is_asked or not job) then return {ended, redis.call('LLEN', KEYS[1]), ''} end
end
for number, outcome in ipairs(outcomes) do
    if outcome == 'd' then
        redis.call('RPUSH', KEYS[5], ARGV[number + 10])
        redis.call('SADD', KEYS[6], ARGV[7])
        redis.call('HSET', places[number], ids[number], '')
    end
end
local taken = {}
local room = tonumber(ARGV[9])
if job then room = room - redis.call('HLEN', KEYS[3]) end
while job do
    redis.call('RPUSH', KEYS[2], string.format('%s %s %.0f', id, token, now + lease))
    redis.call('LPOP', KEYS[1])
    taken[#taken + 1] = job
    if #taken <= room then
        redis.call('HSET', KEYS[3], id, string.format('%s %.0f', token, now + lease))
    end
    if #taken == most then break end
    job, id, token, lease = offered()
end
if #taken > 0 then redis.call('PEXPIRE', KEYS[3], ARGV[10]) end
return {ended, redis.call('LLEN', KEYS[1]), table.concat(outcomes), unpack(taken)}
