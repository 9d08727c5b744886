"""The clients of a run: publishers, queues with their consumers, and the accounts at the end.

At the end all confirmed messages must have been seen, none invented, none delivered after a safe
ack, and all queues must be empty.
"""

import http.client
import re
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec
import pika
from pika.adapters.blocking_connection import BlockingChannel

from leveret.config.settings import Settings
from leveret.testing import RunningCluster
from leveret.testing.cluster import ClusterProcess, wait_until
from tools.chaos.accounts import Account, Sender
from tools.chaos.run import tracebacks
from tools.chaos_cluster.actors import (
    ANSWER_S,
    ENDED,
    EXCHANGE,
    FENCE,
    HEARTBEAT_S,
    Actor,
    AioConsumer,
    AioPublisher,
    Consuming,
    PikaConsumer,
    PikaPublisher,
    connect,
)

# Settings of every node. The election timeout is the default of users; tests have a longer one.
SETTINGS: Final[dict[str, Any]] = {
    "cluster_election_timeout_ms": Settings().cluster_election_timeout_ms,
    "default_pass": "chaos",
}
_TERM: Final = re.compile(r"leads the cluster, term (\d+)")  # logged by the new leader
END_S: Final = 60.0  # for an actor that was told to stop

Consumer = type[PikaConsumer] | type[AioConsumer]


@dataclass
class LoadQueue:
    """A queue and its consumers. Its name is that of its account."""

    account: Account
    arguments: dict[str, Any]
    consumers: tuple[Consumer, ...] = ()
    is_bound: bool = True  # publishers publish to it
    rejects: bool = False  # its consumers reject all messages
    may_expire: bool = False  # its consumers need not see all messages


@dataclass
class Outcome:
    """The figures of a run."""

    rounds: int = 0
    elections: int = 0  # that a node won
    published: int = 0
    confirmed: int = 0
    turned_up: int = 0  # without a confirm
    deliveries: int = 0
    lost: int = 0
    invented: int = 0
    balance: int = 0
    jobs_confirmed: int = 0
    jobs_done: int = 0
    spark_queries: int = 0
    spark_rows: int = 0  # of the last query: messages in the stream
    slowest_s: float = 0.0  # from the end of a fault to the next confirm of every publisher
    faults: list[str] = field(default_factory=list)


class Load:
    """All clients of a run."""

    def __init__(
        self,
        nodes: RunningCluster,
        rng: Random,
        make_queues: Callable[[list[Sender]], list[LoadQueue]],
    ) -> None:
        self.nodes = nodes
        self.rng = rng
        self.outcome = Outcome()
        urls = [nodes.url(name) for name in nodes.nodes]
        self.publishers: list[PikaPublisher | AioPublisher] = [
            PikaPublisher(1, urls, self.fork()),
            AioPublisher(2, urls, self.fork()),
        ]
        self.senders = [publisher.publishing.sender for publisher in self.publishers]
        self.queues = make_queues(self.senders)
        self.consumers: list[Actor] = [
            consumer(queue.account, urls, self.fork(), rejects=queue.rejects)
            for queue in self.queues
            for consumer in queue.consumers
        ]

    def fork(self) -> Random:
        return Random(self.rng.getrandbits(64))

    def define(self) -> None:
        with connect(f"{self.nodes.url('a')}?heartbeat={HEARTBEAT_S}") as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
            channel.queue_declare(FENCE, durable=True, arguments={"x-max-length": 1})
            for queue in self.queues:
                name = queue.account.name
                channel.queue_declare(name, durable=True, arguments=queue.arguments)
                if queue.is_bound:
                    channel.queue_bind(name, EXCHANGE)

    def start(self) -> None:
        for actor in [*self.publishers, *self.consumers]:
            actor.start()

    def attempt(self, step: Callable[[], None]) -> None:
        """Do a step of the run, and note a fault that ends it."""
        try:
            step()
        except (TimeoutError, RuntimeError) as fault:
            self.outcome.faults.append(str(fault))

    def wait_whole(self) -> tuple[float, float]:
        """After a fault, wait for confirms and for all nodes; return the seconds of both."""
        healed_s = time.monotonic()
        self._wait_for_confirms()
        confirm_s = time.monotonic() - healed_s
        self.outcome.slowest_s = max(self.outcome.slowest_s, confirm_s)
        self.nodes.wait_for_members()
        return confirm_s, time.monotonic() - healed_s

    def _wait_for_confirms(self) -> None:
        before = [len(sender.confirmed) for sender in self.senders]
        wait_until(
            lambda: all(
                len(sender.confirmed) > count
                for sender, count in zip(self.senders, before, strict=True)
            ),
            "every publisher gets confirms",
        )

    def finish(self) -> None:
        """Stop the publishers, let the consumers take everything, and stop them."""
        _end([*self.publishers])
        wait_until(self._is_drained, "the consumers have taken all messages")
        _end(self.consumers)
        wait_until(self._is_empty, "all queues are empty")

    @property
    def _consumed(self) -> list[LoadQueue]:
        return [queue for queue in self.queues if queue.consumers]

    def _is_drained(self) -> bool:
        """Return True if no queue has a ready message, and every safe message was seen."""
        if any(queue.account.lost() for queue in self._consumed if not queue.may_expire):
            return False
        with connect(f"{self.nodes.url(self.nodes.leader)}?heartbeat={HEARTBEAT_S}") as found:
            channel = found.channel()
            return all(
                channel.queue_declare(queue.account.name, passive=True).method.message_count == 0
                for queue in self._consumed
            )

    def _is_empty(self) -> bool:
        """Take messages that a consumer had when it stopped; return True if none is left."""
        leader = self.nodes.leader
        try:
            with connect(f"{self.nodes.url(leader)}?heartbeat={HEARTBEAT_S}") as connection:
                channel = connection.channel()
                for queue in self._consumed:
                    take_rest(channel, queue)
        except ENDED:
            return False
        names = [queue.account.name for queue in self._consumed]
        return all(count_messages(self.nodes[leader], name) == 0 for name in names)

    def add_up(self) -> None:
        outcome = self.outcome
        outcome.published = sum(len(sender.sent) for sender in self.senders)
        outcome.confirmed = sum(len(sender.confirmed) for sender in self.senders)
        for queue in self._consumed:
            account = queue.account
            outcome.deliveries += account.deliveries
            outcome.invented += len(account.invented())
            if queue.may_expire:
                outcome.faults += account.noted
                continue
            outcome.turned_up += len(account.turned_up())
            outcome.lost += len(account.lost())
            outcome.balance += abs(account.balance())
            outcome.faults += account.faults()
        for actor in [*self.publishers, *self.consumers]:
            if actor.error is not None:
                outcome.faults.append(f"{actor.name}: {actor.error!r}")
        terms: set[str] = set()
        for name in self.nodes.nodes:
            log = self.nodes[name].log
            terms.update(_TERM.findall(log))
            outcome.faults += [f"node {name}: {text}" for text in tracebacks(log)]
        outcome.elections = len(terms)


def take_rest(channel: BlockingChannel, queue: LoadQueue) -> None:
    """Take all ready messages of a queue."""
    consuming = Consuming(queue.account, rejects=queue.rejects)
    consuming.begin()
    while (found := channel.basic_get(queue.account.name))[0] is not None:
        method, _, body = found
        consuming.on_delivery(body, method.redelivered)
        if queue.rejects:
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
    # A fence, so that these acks are safe too.
    channel.confirm_delivery()
    channel.basic_publish("", FENCE, b"", pika.BasicProperties(delivery_mode=2))
    consuming.account.settle(consuming.take())


def count_messages(node: ClusterProcess, queue: str) -> int | None:
    """Return the messages of a queue, ready or in flight; None: no answer."""
    login = b64encode(node.login.encode()).decode()
    connection = http.client.HTTPConnection(node.host, node.http_port, timeout=ANSWER_S)
    try:
        path = f"/api/queues/%2F/{queue}"
        connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        found: dict[str, Any] = msgspec.json.decode(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return int(found["messages"]) if answer.status == 200 else None


def _end(actors: list[Actor]) -> None:
    for actor in actors:
        actor.stopping.set()
    for actor in actors:
        actor.join(END_S)
        if actor.is_alive():
            raise RuntimeError(f"{actor.name} does not end")
