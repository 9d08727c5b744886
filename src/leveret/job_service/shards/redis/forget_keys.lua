-- Deletes idempotency keys that still stand for jobs that were taken back.
--
-- KEYS   the idempotency keys
-- ARGV   the id of each

for i = 1, #KEYS do
    if redis.call('GET', KEYS[i]) == ARGV[i] then redis.call('DEL', KEYS[i]) end
end
