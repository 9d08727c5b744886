"""The keys of the lists, leases and notes of prefetched jobs, encoded.

A lease of a prefetched job lasts a minute at most. So it is among those that were given in this
minute or in the one before, and the keys of earlier minutes expire.
"""

from functools import lru_cache
from typing import Final

from leveret.job_service.shards.redis import keys as redis_keys
from leveret.job_service.shards.sql.loader import PREFETCH_LEASE_MS_MAX
from leveret.job_service.shards.topic_name import TopicName

NAMES_KEPT: Final = 4_096  # topics whose keys are cached


@lru_cache(NAMES_KEPT)
def prefetch_names(topic: TopicName) -> tuple[bytes, bytes, bytes]:
    """Return the keys of a topic's list and of its notes, and its member of the set of lists."""
    listed, handed = redis_keys.queue_key(*topic), redis_keys.handed_key(*topic)
    return listed.encode(), handed.encode(), member_of(topic)


def member_of(topic: TopicName) -> bytes:
    """Return the member of a set of topics."""
    return "\0".join(topic).encode()


def topic_of(member: bytes) -> TopicName:
    """Return the topic of a member of a set of topics."""
    namespace, _, topic = member.decode().partition("\0")
    return namespace, topic


def awaited_name(topic: TopicName) -> bytes:
    """Return the key of the mark that a dequeue has found no prefetched job."""
    return redis_keys.awaited_key(*topic).encode()


@lru_cache(NAMES_KEPT)
def acked_name(topic: TopicName) -> bytes:
    """Return the key of a topic's notes of acks."""
    return redis_keys.acked_key(*topic).encode()


def lease_names(topic: TopicName, now_ms: int) -> tuple[bytes, bytes]:
    """Return the keys of the leases that were given in this minute and in the one before."""
    beginning, minute = _leases_name(topic), now_ms // PREFETCH_LEASE_MS_MAX
    return b"%b%d" % (beginning, minute), b"%b%d" % (beginning, minute - 1)


@lru_cache(NAMES_KEPT)
def _leases_name(topic: TopicName) -> bytes:
    return redis_keys.leases_key(*topic).encode()
