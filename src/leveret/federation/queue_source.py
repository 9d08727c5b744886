"""The upstream end of a queue link: it consumes while a local consumer waits for messages.

The link consumes from the upstream queue while the local queue is empty and one of its consumers
could take a message. Otherwise it cancels its consumer, so that messages stay where they are. Its
consumer has the priority -1: the upstream serves its own consumers first. A local consumer below
priority 0 does not count, because it belongs to another link: messages would go in circles.
RabbitMQ: same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leveret.amqp.methods import BASIC_CANCEL, BASIC_CONSUME
from leveret.amqp.writer import MethodWriter
from leveret.engine.queues.queue import Queue
from leveret.federation.upstream_source import LocalObject, UpstreamSource
from leveret.shovels.interfaces import ShovelListener
from leveret.shovels.remote import (
    QUEUE_AUTO_DELETE,
    QUEUE_DURABLE,
    ensure_queue,
)
from leveret.shovels.settings import NO_ACK
from leveret.wire.tables import Table, field_of

_NO_ACK: Final = 2
_CONSUME_NOWAIT: Final = 8
_CANCEL_NOWAIT: Final = 1
_PRIORITY: Final[Table] = {"x-priority": field_of(-1)}


@dataclass(frozen=True)
class LocalQueue(LocalObject):
    """The federated queue of this node."""

    find: Callable[[], Queue]  # raises NotFoundError


class QueueSource(UpstreamSource[LocalQueue]):
    """Consumes from the upstream queue when messages are wanted here."""

    _is_open = False
    _is_consuming = False

    async def open(self, listener: ShovelListener) -> None:
        await self._connect(listener)
        if self._queue == self._local.name:
            self._require_other_cluster()
        await self._ensure_queue()
        await self._set_prefetch()
        self._is_open = True
        self.regulate()

    @property
    def _queue(self) -> str:
        """Return the name of the queue at the upstream."""
        return self._upstream.queue or self._local.name

    async def _ensure_queue(self) -> None:
        """Declare the upstream queue like the local one, unless it exists."""
        local = self._local.find()
        flags = QUEUE_DURABLE if local.durable else 0
        flags |= QUEUE_AUTO_DELETE if local.auto_delete else 0
        await ensure_queue(self._client, self._queue, local.arguments, flags=flags)

    def request_more(self) -> None:
        super().request_more()
        self.regulate()

    def regulate(self) -> None:
        """Consume if messages are wanted here, and stop if not."""
        if not self._is_open:
            return
        is_wanted = wants_messages(self._local.find())
        if is_wanted == self._is_consuming:
            return
        self._is_consuming = is_wanted
        tag = self._upstream.consumer_tag
        if not is_wanted:
            cancel = MethodWriter(BASIC_CANCEL).short_string(tag).octet(_CANCEL_NOWAIT)
            self._client.send(cancel)
            return
        consume = MethodWriter(BASIC_CONSUME).short(0).short_string(self._queue).short_string(tag)
        no_ack = _NO_ACK if self._settings.ack_mode == NO_ACK else 0
        self._client.send(consume.octet(no_ack | _CONSUME_NOWAIT).table(_PRIORITY))


def wants_messages(queue: Queue) -> bool:
    """Return True if a consumer of the queue waits for messages."""
    if queue.message_count() > 0 or queue.paused:
        return False
    return any(
        consumer.active and consumer.priority >= 0 and consumer.has_room()
        for consumer in queue.consumers
    )
