-- Removes flushed jobs from the left of a buffer. Another node that flushed the same jobs may have
-- removed them before.
--
-- KEYS   the buffer, the set of buffers, the list of prefetched jobs
-- ARGV   the member of the set of buffers, the most urgent priority that became ready or '', the ids in
--        their order, 8 bytes each
--
-- Where the first and the last job are still in their places, so are all between them.
--
-- Returns 1 where prefetched jobs are less urgent than the flushed ones, else 0.

local ids, jobs = ARGV[3], #ARGV[3] / 8
local head, tail = redis.call('LINDEX', KEYS[1], 0), redis.call('LINDEX', KEYS[1], jobs - 1)
if tail and string.sub(head, 1, 8) == string.sub(ids, 1, 8)
    and string.sub(tail, 1, 8) == string.sub(ids, -8) then
    redis.call('LTRIM', KEYS[1], jobs, -1)
    head = redis.call('LINDEX', KEYS[1], 0)
else
    local flushed = {}
    for at = 1, #ids, 8 do flushed[string.sub(ids, at, at + 7)] = true end
    while head and flushed[string.sub(head, 1, 8)] do
        redis.call('LPOP', KEYS[1])
        head = redis.call('LINDEX', KEYS[1], 0)
    end
end
if not head then redis.call('SREM', KEYS[2], ARGV[1]) end
local last = redis.call('LINDEX', KEYS[3], -1)
if not last or ARGV[2] == '' then return 0 end
local priority = string.match(last, '^%w+ %d+ %d+ %d+ %d+ (-?%d+) ')
return tonumber(priority) > tonumber(ARGV[2]) and 1 or 0
