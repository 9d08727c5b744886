"""What Redis does in one step: scripts in Lua, and the names of the keys.

    mqueue:buffer:{namespace}:{topic}   list: jobs on their way to a table; pushed right, read left
    mqueue:queue:{namespace}:{topic}    list: prefetched jobs as id:priority, most urgent first
    mqueue:rate:{namespace}             counter: jobs put in this second; expires
    mqueue:key:{namespace}:{key}        string: the id that an idempotency key stands for; expires
    mqueue:buffers                      set: namespace, a zero byte, topic of every buffer
    mqueue:keys                         string: until when PostgreSQL may know keys that Redis lost
    mqueue:node:{number}                string: who has leased the number of a node; expires
    mqueue:shards                       hash: the shard map, for when the first shard is down

A colon in a name is written %3A, a percent sign %25.
"""

from typing import Final

BUFFERS: Final = "mqueue:buffers"
KEYS_SINCE: Final = "mqueue:keys"
SHARDS: Final = "mqueue:shards"


def buffer_key(namespace: str, topic: str) -> str:
    return f"mqueue:buffer:{_part(namespace)}:{_part(topic)}"


def queue_key(namespace: str, topic: str) -> str:
    return f"mqueue:queue:{_part(namespace)}:{_part(topic)}"


def rate_key(namespace: str) -> str:
    return f"mqueue:rate:{_part(namespace)}"


def idempotency_key(namespace: str, key: str) -> str:
    return f"mqueue:key:{_part(namespace)}:{_part(key)}"


def _part(name: str) -> str:
    """A name without colons: a:b and c must not meet a and b:c."""
    return name.replace("%", "%25").replace(":", "%3A")


def node_key(number: int) -> str:
    return f"mqueue:node:{number}"


# All jobs of a batch, or none. ARGV: buffer_max, now in ms, whether PostgreSQL was asked for the
# keys; then for each job its buffer, its member of `mqueue:buffers`, its idempotency key or '',
# the key's time in ms, its id in digits, its bytes. Answers a word and, for 'ok', what each job's
# key stood for already, or ''.
PUSH_KEYED: Final = """
local jobs, found, lengths = (#ARGV - 3) / 6, {}, {}
for i = 1, jobs do
    local at = 3 + (i - 1) * 6
    local buffer, key = ARGV[at + 1], ARGV[at + 3]
    found[i] = ''
    if key ~= '' then
        found[i] = redis.call('GET', key) or ''
        if found[i] == '' and ARGV[3] == '0' then
            local since = redis.call('GET', KEYS[2])
            if not since or tonumber(since) > tonumber(ARGV[2]) then return {'ask'} end
        end
    end
    if found[i] == '' then
        lengths[buffer] = (lengths[buffer] or redis.call('LLEN', buffer)) + 1
        if lengths[buffer] > tonumber(ARGV[1]) then return {'full', buffer} end
    end
end
for i = 1, jobs do
    local at = 3 + (i - 1) * 6
    if found[i] == '' then
        if ARGV[at + 3] ~= '' then
            redis.call('SET', ARGV[at + 3], ARGV[at + 5], 'PX', ARGV[at + 4])
        end
        redis.call('RPUSH', ARGV[at + 1], ARGV[at + 6])
        redis.call('SADD', KEYS[1], ARGV[at + 2])
    end
end
return {'ok', unpack(found)}
"""

# The same for jobs without idempotency keys, which most are. ARGV: buffer_max; then for each topic
# its buffer, its member, how many jobs it gets, their bytes. Answers a word alone for 'ok'.
PUSH: Final = """
local at, most = 2, tonumber(ARGV[1])
while ARGV[at] do
    local jobs = tonumber(ARGV[at + 2])
    if redis.call('LLEN', ARGV[at]) + jobs > most then return {'full', ARGV[at]} end
    at = at + 3 + jobs
end
at = 2
while ARGV[at] do
    local last = at + 2 + tonumber(ARGV[at + 2])
    redis.call('RPUSH', ARGV[at], unpack(ARGV, at + 3, last))
    redis.call('SADD', KEYS[1], ARGV[at + 1])
    at = last + 1
end
return {'ok'}
"""

# Takes from the left of a buffer what was flushed: ARGV has the member, the most urgent priority
# that became ready, then the ids as bytes. Who else flushed the same jobs may have taken them
# before. Answers 1 where prefetched jobs are less urgent than what was flushed.
TRIM: Final = """
local flushed = {}
for i = 3, #ARGV do flushed[ARGV[i]] = true end
local head = redis.call('LINDEX', KEYS[1], 0)
while head and flushed[string.sub(head, 1, 8)] do
    redis.call('LPOP', KEYS[1])
    head = redis.call('LINDEX', KEYS[1], 0)
end
if not head then redis.call('SREM', KEYS[2], ARGV[1]) end
local last = redis.call('LINDEX', KEYS[3], -1)
if not last or ARGV[2] == '' then return 0 end
return tonumber(string.match(last, ':(.*)')) > tonumber(ARGV[2]) and 1 or 0
"""

# Prefetched ids, unless jobs wait in the buffer: those must reach their table first.
POP: Final = """
if redis.call('LLEN', KEYS[1]) > 0 then return {'buffered'} end
local ids = redis.call('LPOP', KEYS[2], ARGV[1])
if not ids then return {'ok'} end
return {'ok', unpack(ids)}
"""

# All prefetched ids of a topic, which leave the list.
TAKE_BACK: Final = """
local ids = redis.call('LRANGE', KEYS[1], 0, -1)
if #ids > 0 then redis.call('DEL', KEYS[1]) end
return ids
"""

# Counts jobs of a namespace in the window of a second; what goes beyond is not counted. A batch
# that is larger than the rate has a window of its own, as long as its jobs may take. Answers 0, or
# for how many ms the window is still closed.
RATE: Final = """
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
local most = tonumber(ARGV[2])
if count == tonumber(ARGV[1]) then
    redis.call('PEXPIRE', KEYS[1], math.ceil(1000 * math.max(count / most, 1)))
    return 0
end
if count <= most then return 0 end
redis.call('DECRBY', KEYS[1], ARGV[1])
return math.max(redis.call('PTTL', KEYS[1]), 1)
"""

# Renews or ends a lease that is still ours; ARGV: owner, time in ms or 0.
RENEW: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# Forgets keys that stand for jobs that were taken back.
FORGET: Final = """
for i = 1, #KEYS do
    if redis.call('GET', KEYS[i]) == ARGV[i] then redis.call('DEL', KEYS[i]) end
end
"""
