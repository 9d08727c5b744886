-- Removes flushed jobs from the left of a buffer. Another node that flushed the same jobs may have
-- removed them before.
--
-- KEYS   the buffer, the set of buffers, the list of prefetched jobs
-- ARGV   the member of the set of buffers, the most urgent priority that became ready or '', then the
--        ids as 8 bytes each
--
-- Returns 1 where prefetched jobs are less urgent than the flushed ones, else 0.

local flushed = {}
for i = 3, #ARGV do flushed[ARGV[i]] = true end
local head = redis.call('LINDEX', KEYS[1], 0)
while head and flushed[string.sub(head, 1, 8)] do
    redis.call('LPOP', KEYS[1])
    head = redis.call('LINDEX', KEYS[1], 0)
end
if not head then redis.call('SREM', KEYS[2], ARGV[1]) end
local last = redis.call('LINDEX', KEYS[3], -1)
if not last or ARGV[2] == '' then return 0 end
local priority = string.match(last, '^%w+ %d+ %d+ %d+ %d+ (-?%d+) ')
return tonumber(priority) > tonumber(ARGV[2]) and 1 or 0
