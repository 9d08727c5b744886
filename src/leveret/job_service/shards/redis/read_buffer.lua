-- Reads jobs of a buffer until they have a number of bytes.
--
-- KEYS   the buffer
-- ARGV   the position of the first job, the number of jobs and the number of bytes to read at most
--
-- Returns the jobs. The last one may go beyond the number of bytes.

local found = {}
local at, left, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
while left > 0 and bytes > 0 do
    local job = redis.call('LINDEX', KEYS[1], at)
    if not job then break end
    found[#found + 1] = job
    at, left, bytes = at + 1, left - 1, bytes - #job
end
return found
