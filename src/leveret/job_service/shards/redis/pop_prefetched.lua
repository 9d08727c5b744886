-- Takes prefetched ids, unless jobs wait in the buffer: those must reach their table first.
--
-- KEYS   the buffer, the list of prefetched jobs
-- ARGV   how many at most
--
-- Returns {'ok', id:priority, ...} or {'buffered'}.

if redis.call('LLEN', KEYS[1]) > 0 then return {'buffered'} end
local ids = redis.call('LPOP', KEYS[2], ARGV[1])
if not ids then return {'ok'} end
return {'ok', unpack(ids)}
