-- Removes notes of jobs that were handed out, once the shard has them. Another node that wrote the same
-- notes may have removed them before.
--
-- KEYS   the list of notes, the list of prefetched jobs, the set of topics that have prefetched jobs
-- ARGV   the member of the set, then the notes

local noted = {}
for i = 2, #ARGV do noted[ARGV[i]] = true end
local head = redis.call('LINDEX', KEYS[1], 0)
while head and noted[head] do
    redis.call('LPOP', KEYS[1])
    head = redis.call('LINDEX', KEYS[1], 0)
end
if not head and redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[3], ARGV[1]) end
