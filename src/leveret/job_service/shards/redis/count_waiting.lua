-- Counts the jobs and notes of a topic that wait in Redis.
--
-- KEYS   the buffer, the list of prefetched jobs, the notes of jobs that were handed out, the notes of jobs
--        that were acked, the mark of a dequeue that found no prefetched job
-- ARGV   for how many ms to set the mark if no job is prefetched, or ''
--
-- Returns the lengths of the four lists.

local lengths = {}
for number = 1, 4 do lengths[number] = redis.call('LLEN', KEYS[number]) end
if ARGV[1] ~= '' and lengths[2] == 0 then
    -- A Redis that is full refuses the mark. It also refuses to list jobs, so none is missed.
    redis.pcall('SET', KEYS[5], '1', 'PX', ARGV[1])
end
return lengths
