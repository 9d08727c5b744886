-- Removes notes of jobs that were handed out or acked, once the shard has them. Another node that wrote the
-- same notes may have removed them before.
--
-- KEYS   the notes of jobs that were handed out, the list of prefetched jobs, the set of topics that have
--        one of these, the notes of jobs that were acked, the set of topics that have such notes, the
--        leases of this minute, the leases of the minute before
-- ARGV   the member of the sets, the number of notes of jobs that were handed out, these notes, then the
--        notes of jobs that were acked

local function remove(key, from, to)
    local noted = {}
    for at = from, to do noted[ARGV[at]] = true end
    local head = redis.call('LINDEX', key, 0)
    while head and noted[head] do
        redis.call('LPOP', key)
        head = redis.call('LINDEX', key, 0)
    end
    return not head
end

local handed = tonumber(ARGV[2])
if remove(KEYS[1], 3, handed + 2) and redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('SREM', KEYS[3], ARGV[1])
end
if remove(KEYS[4], handed + 3, #ARGV) then redis.call('SREM', KEYS[5], ARGV[1]) end
for at = handed + 3, #ARGV do  -- the shard does not know these jobs any more
    local id = string.match(ARGV[at], '^%d+')
    redis.call('HDEL', KEYS[6], id)
    redis.call('HDEL', KEYS[7], id)
end
