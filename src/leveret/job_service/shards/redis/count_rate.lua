-- Counts jobs of a namespace in a window of one second. Jobs over the limit are not counted. A batch
-- that is larger than the limit gets a window of its own, as long as its jobs may take.
--
-- KEYS   the counter
-- ARGV   the number of jobs, the limit
--
-- Returns 0, or for how many ms the window is still closed.

local count = redis.call('INCRBY', KEYS[1], ARGV[1])
local most = tonumber(ARGV[2])
if count == tonumber(ARGV[1]) then
    redis.call('PEXPIRE', KEYS[1], math.ceil(1000 * math.max(count / most, 1)))
    return 0
end
if count <= most then return 0 end
redis.call('DECRBY', KEYS[1], ARGV[1])
return math.max(redis.call('PTTL', KEYS[1]), 1)
