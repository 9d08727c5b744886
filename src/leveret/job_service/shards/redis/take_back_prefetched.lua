-- Takes all prefetched jobs of a topic off their list and returns them as id:priority.
--
-- KEYS   the list of prefetched jobs

local ids = redis.call('LRANGE', KEYS[1], 0, -1)
if #ids > 0 then redis.call('DEL', KEYS[1]) end
return ids
