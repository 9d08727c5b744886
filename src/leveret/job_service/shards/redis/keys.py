"""The names of the keys in Redis.

    mqueue:buffer:{namespace}:{topic}   list: jobs on their way to a table; pushed right, read left
    mqueue:queue:{namespace}:{topic}    list: prefetched jobs, most urgent first
    mqueue:handed:{namespace}:{topic}   list: notes of prefetched jobs that were handed out
    mqueue:queues                       set: namespace, a zero byte, topic of each of these lists
    mqueue:leases:{namespace}:{topic}:{minute}   hash: leases of prefetched jobs by id; expires
    mqueue:acked:{namespace}:{topic}    list: notes of prefetched jobs that were acked
    mqueue:acks                         set: namespace, a zero byte, topic of each of these lists
    mqueue:awaited:{namespace}:{topic}  string: a dequeue has found no prefetched job; 2 if a lone
                                        push has seen that, else 1; expires
    mqueue:rate:{namespace}             counter: jobs enqueued this second; expires
    mqueue:key:{namespace}:{key}        string: the id that an idempotency key stands for; expires
    mqueue:buffers                      set: namespace, a zero byte, topic of every buffer
    mqueue:keys                         string: until when PostgreSQL may know keys that Redis lost
    mqueue:node:{number}                string: the owner of the lease of a node number; expires
    mqueue:probe                        string: written to see whether Redis has room; expires
    mqueue:shards                       hash: the shard map, for when the first shard is down

A colon in a name is written %3A, a percent sign %25.
"""

from typing import Final

BUFFERS: Final = "mqueue:buffers"
QUEUES: Final = "mqueue:queues"
ACKS: Final = "mqueue:acks"
KEYS_SINCE: Final = "mqueue:keys"
PROBE: Final = "mqueue:probe"
SHARDS: Final = "mqueue:shards"


def buffer_key(namespace: str, topic: str) -> str:
    return f"mqueue:buffer:{_part(namespace)}:{_part(topic)}"


def queue_key(namespace: str, topic: str) -> str:
    return f"mqueue:queue:{_part(namespace)}:{_part(topic)}"


def handed_key(namespace: str, topic: str) -> str:
    return f"mqueue:handed:{_part(namespace)}:{_part(topic)}"


def acked_key(namespace: str, topic: str) -> str:
    return f"mqueue:acked:{_part(namespace)}:{_part(topic)}"


def leases_key(namespace: str, topic: str) -> str:
    """Return the beginning of the names; the minute of the hand-out follows."""
    return f"mqueue:leases:{_part(namespace)}:{_part(topic)}:"


def awaited_key(namespace: str, topic: str) -> str:
    return f"mqueue:awaited:{_part(namespace)}:{_part(topic)}"


def rate_key(namespace: str) -> str:
    return f"mqueue:rate:{_part(namespace)}"


def idempotency_key(namespace: str, key: str) -> str:
    return f"mqueue:key:{_part(namespace)}:{_part(key)}"


def _part(name: str) -> str:
    """Escape colons, so that the names a:b and c differ from a and b:c."""
    return name.replace("%", "%25").replace(":", "%3A")


def node_key(number: int) -> str:
    return f"mqueue:node:{number}"
