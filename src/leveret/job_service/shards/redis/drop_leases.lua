-- Forgets leases of prefetched jobs, because the shard is asked to settle the jobs.
--
-- KEYS   the leases of this minute, the leases of the minute before
-- ARGV   the ids of the jobs
--
-- Returns a letter for each job: unknown since it was acked before (u), the shard must be asked (s).

local outcomes = {}
for at, id in ipairs(ARGV) do
    outcomes[at] = 's'
    for _, place in ipairs(KEYS) do
        local lease = redis.call('HGET', place, id)
        if lease == '' then
            outcomes[at] = 'u'
        elseif lease then
            redis.call('HDEL', place, id)
        end
    end
end
return table.concat(outcomes)
