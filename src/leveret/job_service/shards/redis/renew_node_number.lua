-- Renews or ends the lease of a node number, where the owner still has it.
--
-- KEYS   the lease
-- ARGV   the owner, the new duration in ms or 0 to end it
--
-- Returns 1, or 0 where another owner has the lease.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
