"""The situations, by topic; `ALL` holds every case in the order of the topics.

`LEFT_OUT` names the situations that are known but not played, with the reason.
"""

from __future__ import annotations

from typing import Final

from tests.compat.case import Case, Topic
from tests.compat.cases import (
    acknowledge,
    bindings,
    channel,
    consume,
    content,
    dead_letter,
    dead_letter_loops,
    exchange,
    exclusive,
    extensions,
    framing,
    handshake,
    headers,
    lifecycle,
    limits,
    nowait,
    priority,
    publish,
    qos,
    queue_arguments,
    queue_declare,
    quorum,
    reply_to,
    retry,
    routing,
    single_active,
    stream,
    stream_begin,
    stream_declare,
    stream_deliver,
    stream_filter,
    transactions,
    ttl,
)

TOPICS: Final[tuple[Topic, ...]] = (
    queue_declare.topic,
    queue_arguments.topic,
    exclusive.topic,
    exchange.topic,
    bindings.topic,
    consume.topic,
    publish.topic,
    acknowledge.topic,
    transactions.topic,
    channel.topic,
    framing.topic,
    handshake.topic,
    dead_letter.topic,
    dead_letter_loops.topic,
    limits.topic,
    ttl.topic,
    priority.topic,
    qos.topic,
    single_active.topic,
    lifecycle.topic,
    nowait.topic,
    reply_to.topic,
    routing.topic,
    headers.topic,
    content.topic,
    quorum.topic,
    retry.topic,
    extensions.topic,
    stream_declare.topic,
    stream_begin.topic,
    stream_deliver.topic,
    stream.topic,
    stream_filter.topic,
)

ALL: Final[tuple[Case, ...]] = tuple(case for topic in TOPICS for case in topic.cases)

LEFT_OUT: Final[dict[str, str]] = {}
