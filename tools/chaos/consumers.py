"""Consumers: each takes messages from one queue for a while, and acks or rejects them.

A consumer proves that its acks are on disk by a fence, because the log has one order for
everything. Now and then it publishes a persistent message (the fence) on the same channel. When the
fence is confirmed, all acks before it are safe as well, and the acked messages must never come
again.
"""

import time
from collections import deque
from random import Random
from typing import Final

from tests.compat.client import Channel, Connection, Event, Method, NoAnswerError, is_end
from tools.chaos.accounts import Account, Key, Sender
from tools.chaos.actor import Actor
from tools.chaos.bodies import decode_body
from tools.server import Server

FENCE: Final = "fence"  # a queue that keeps one message
FENCE_EVERY: Final = 20  # deliveries
SESSION_S_MAX: Final = 2.0
PAUSE_S_MAX: Final = 0.5
WAKE_S: Final = 0.2

Settled = list[tuple[Key, bool]]  # what was acked or, where True, rejected


class Consumer(Actor):
    """One connection that consumes one queue."""

    def __init__(
        self, server: Server, rng: Random, account: Account, rejected: Sender | None = None
    ) -> None:
        super().__init__(f"consumer of {account.name}", server, rng)
        self.account = account
        self._rejected = rejected  # the account of the queue that gets rejected messages
        self._unfenced: Settled = []  # settled since the last fence
        self._fences: deque[tuple[int, Settled]] = deque()  # unconfirmed fences, by delivery tag
        self._fence_tag = 0

    def work(self) -> None:
        connection = self.server.connect()
        try:
            self._consume(connection)
        finally:
            connection.drop()
        self.stopping.wait(self.rng.uniform(0, PAUSE_S_MAX))

    def _consume(self, connection: Connection) -> None:
        channel = self._begin(connection)
        channel.call("basic.qos", prefetch_count=self.rng.randrange(1, 300))
        channel.call("basic.consume", queue=self.account.name, consumer_tag="c")
        for event in channel.take():  # events before the answer
            self._on_event(channel, event)
        end_s = time.monotonic() + self.rng.uniform(0, SESSION_S_MAX)
        while time.monotonic() < end_s and not self.stopping.is_set():
            self._receive(channel, WAKE_S)
        connection.close()

    def _begin(self, connection: Connection) -> Channel:
        channel = connection.channel()
        channel.call("confirm.select")
        self.account.begin_session()
        self._unfenced = []
        self._fences.clear()
        self._fence_tag = 0
        return channel

    def _receive(self, channel: Channel, within_s: float) -> None:
        try:
            event = channel.connection.receive(channel.number, within_s)
        except NoAnswerError:
            return
        self._on_event(channel, event)

    def _on_event(self, channel: Channel, event: Event) -> None:
        if is_end(event):
            raise NoAnswerError("the connection is gone")
        assert isinstance(event, Method)
        if event.name == "basic.ack":
            self._on_confirm(event)
        else:
            assert event.name == "basic.deliver", event
            self._on_message(channel, event)

    def _on_message(self, channel: Channel, message: Method) -> None:
        label = decode_body(message.body)
        redelivered = bool(message.fields["redelivered"])
        now_ms = self.clock.now_ms()
        self.account.on_delivery(label, redelivered=redelivered, now_ms=now_ms)
        if label is None:
            return
        if self._rejected is not None and self.rng.random() < 0.5:
            self._rejected.sent.add(label.key)
            channel.send("basic.reject", delivery_tag=message.tag, requeue=False)
            self._unfenced.append((label.key, True))
        else:
            channel.send("basic.ack", delivery_tag=message.tag)
            self._unfenced.append((label.key, False))
        if len(self._unfenced) >= FENCE_EVERY:
            self._send_fence(channel)

    def _send_fence(self, channel: Channel) -> None:
        self._fence_tag += 1
        self._fences.append((self._fence_tag, self._unfenced))
        self._unfenced = []
        channel.publish("", FENCE, b"", {"delivery_mode": 2})

    def _on_confirm(self, event: Method) -> None:
        """Note that fences up to a tag, and everything before them, are on disk."""
        while self._fences and self._fences[0][0] <= event.tag:
            settled = self._fences.popleft()[1]
            self.account.settled.update(key for key, _ in settled)
            if self._rejected is not None:
                self._rejected.confirmed.update(key for key, is_reject in settled if is_reject)

    def drain(self) -> int:
        """Take all remaining messages, until their acks are on disk; return how many."""
        connection = self.server.connect()
        channel = self._begin(connection)
        count = 0
        while (message := channel.get(self.account.name, no_ack=False)) is not None:
            self._on_message(channel, message)
            count += 1
        self._send_fence(channel)
        for event in channel.take():
            self._on_event(channel, event)
        while self._fences:
            self._on_event(channel, connection.receive(channel.number))
        connection.close()
        return count
