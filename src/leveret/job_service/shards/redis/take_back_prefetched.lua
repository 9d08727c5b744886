-- Takes all prefetched jobs of a topic off their list, and returns them.
--
-- KEYS   the list of prefetched jobs

local jobs = redis.call('LRANGE', KEYS[1], 0, -1)
redis.call('DEL', KEYS[1])
return jobs
