"""The topics of the node: found, created at their first use, and forgotten with their queues.

A topic that is not known here may exist as a queue, for example after a restart. Its `Topic` is
made at the first call that needs it. The `Topic` of a deleted queue is dropped at the latest when
as many further ones have come as there were.
"""

import json
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import JobsFullError, JobsInvalidError
from leveret.job_model import TopicSettings
from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.id_generator import IdGenerator
from leveret.job_service.embedded.topic import TOPIC_ARGUMENTS, Topic
from leveret.slices import Slices

SETTINGS: Final = "job-topic"  # kind of the entries in the register
_DELETED_MAX: Final = 1_000  # topics of deleted queues that are kept in any case
_encode: Final = msgspec.json.Encoder().encode
_settings: Final = msgspec.json.Decoder(TopicSettings)


class Topics:
    """All topics that calls have used."""

    def __init__(self, host: Host, ids: IdGenerator) -> None:
        self._host = host
        self._ids = ids
        self._topics: dict[tuple[str, str], Topic] = {}
        self._sweep_at = _DELETED_MAX  # number of topics

    def open(self) -> list[Topic]:
        """Return all topics that calls have used."""
        return list(self._topics.values())

    def sessions(self) -> list[Session]:
        """Return the sessions that hold leased jobs."""
        sessions = [topic.session for topic in self._topics.values()]
        return [session for session in sessions if session.unacked.count]

    def get(self, namespace: str, topic: str) -> Topic | None:
        """Return a topic that a call has used; None if there is none, or its queue is deleted."""
        found = self._topics.get((namespace, topic))
        return None if found is None or found.queue.deleted else found

    def at(self, namespace: str, topic: str) -> Topic:
        """Return a topic, inside a turn; create it and its namespace if there is none."""
        found = self.get(namespace, topic)
        if found is not None:
            return found
        known = self._host.broker.vhosts.get(namespace)
        if (known is None or topic not in known.queues) and (alarms := self._host.alarms()):
            raise JobsFullError(f"no topic can be created now: {'; '.join(alarms)}")
        vhost = self._host.make_vhost(namespace)
        queue = vhost.queues.get(topic)
        if queue is None:
            queue = vhost.declare_queue(topic, durable=True, arguments=TOPIC_ARGUMENTS)
        return self._enter(vhost, queue)

    def known(self, namespace: str, topic: str) -> Topic | None:
        """Return a topic; None where it does not exist."""
        found = self.get(namespace, topic)
        if found is not None:
            return found
        vhost = self._host.broker.vhosts.get(namespace)
        queue = vhost.queues.get(topic) if vhost is not None else None
        if vhost is None or queue is None:
            return None
        with self._host.turn():
            return self._enter(vhost, queue)

    def _enter(self, vhost: Vhost, queue: Queue) -> Topic:
        key = (vhost.name, queue.name)
        old = self._topics.pop(key, None)
        if old is not None:
            old.close()
        if kind := _refused_kind(queue):
            raise JobsInvalidError(f"{queue.name} is {kind}, which cannot be a topic", "topic")
        if len(self._topics) >= self._sweep_at:
            self._sweep()
        self._topics[key] = Topic(self._host, self._ids, vhost, queue, self.settings(*key))
        return self._topics[key]

    def _sweep(self) -> None:
        """Drop the topics whose queues are deleted, inside a turn."""
        for key, topic in list(self._topics.items()):
            if topic.queue.deleted:
                topic.close()
                del self._topics[key]
        self._sweep_at = 2 * len(self._topics) + _DELETED_MAX

    async def all(self, namespace: str | None, slices: Slices) -> AsyncIterator[Topic]:
        """Return every topic: queues declared for jobs, and queues that jobs calls have used."""
        for vhost in list(self._host.broker.vhosts.values()):
            if namespace is not None and vhost.name != namespace:
                continue
            for queue in list(vhost.queues.values()):
                topic = self._maybe_topic(vhost, queue)
                if topic is not None:
                    yield topic
                await slices.rest_if_over()

    def _maybe_topic(self, vhost: Vhost, queue: Queue) -> Topic | None:
        """Return the topic of a queue; None if it is none, whatever its arguments say."""
        is_topic = queue.settings.has_jobs or self.get(vhost.name, queue.name) is not None
        if not is_topic or queue.deleted or _refused_kind(queue):
            return None
        return self.known(vhost.name, queue.name)

    def settings(self, namespace: str, topic: str) -> TopicSettings:
        text = self._host.broker.register.get(SETTINGS, json.dumps([namespace, topic]))
        return TopicSettings() if text is None else _settings.decode(text)

    def set_settings(self, namespace: str, topic: str, settings: TopicSettings) -> Topic:
        """Change the settings of a topic, inside a turn; return the topic."""
        found = self.at(namespace, topic)
        key = json.dumps([namespace, topic])
        self._host.broker.register.put(SETTINGS, key, _encode(settings).decode())
        found.settings = settings
        return found


def _refused_kind(queue: Queue) -> str:
    """Return what a queue is, if it cannot be a topic; else an empty text."""
    if isinstance(queue, Stream):
        return "a stream"
    return "an exclusive queue" if queue.owner is not None else ""
