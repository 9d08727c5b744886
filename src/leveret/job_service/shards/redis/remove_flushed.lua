-- Removes flushed jobs from the left of a buffer. Another node that flushed the same jobs may have
-- removed them before.
--
-- KEYS   the buffer, the set of buffers
-- ARGV   the member of the set of buffers, then the ids as 8 bytes each

local flushed = {}
for i = 2, #ARGV do flushed[ARGV[i]] = true end
local head = redis.call('LINDEX', KEYS[1], 0)
while head and flushed[string.sub(head, 1, 8)] do
    redis.call('LPOP', KEYS[1])
    head = redis.call('LINDEX', KEYS[1], 0)
end
if not head then redis.call('SREM', KEYS[2], ARGV[1]) end
