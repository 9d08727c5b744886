"""Publishers with confirms: each is a connection that reconnects whenever the broker is back.

A publisher keeps a window of unconfirmed messages. Messages without a confirm at the end of the
connection may or may not be in the queue; confirmed messages must be.
"""

import time
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.compat.client import Channel, Connection, Event, Method, NoAnswerError, is_end
from tools.chaos.accounts import Account, Key, Sender
from tools.chaos.actor import Actor
from tools.chaos.bodies import Label, encode_body
from tools.server import Server

WINDOW_MAX: Final = 100
BACKLOG_MAX: Final = 1500  # messages that wait for consumers before a publisher waits too
BACKLOG_WAIT_S: Final = 0.02
DELAY_MS_MAX: Final = 2000
PRIORITIES: Final = 6


@dataclass(frozen=True)
class Route:
    """The exchange and routing key of a publisher, and the kinds of its messages."""

    exchange: str
    routing_key: str
    accounts: tuple[Account, ...]  # accounts of the queues that every message goes to
    has_priorities: bool = False
    has_delays: bool = False


class Publisher(Actor):
    """One connection that publishes along one route."""

    def __init__(self, server: Server, rng: Random, route: Route, number: int) -> None:
        super().__init__(f"publisher {number}", server, rng)
        self.sender = Sender(number)
        self._route = route
        for account in route.accounts:
            account.senders.append(self.sender)

    def work(self) -> None:
        connection = self.server.connect()
        try:
            self._publish(connection)
        finally:
            connection.drop()

    def _publish(self, connection: Connection) -> None:
        channel = connection.channel()
        channel.call("confirm.select")
        window = self.rng.randrange(1, WINDOW_MAX)
        keys: list[Key] = []  # by delivery tag, from 1
        waiting: set[int] = set()  # tags
        while not self.stopping.is_set() or waiting:
            while len(waiting) < window and not self.stopping.is_set():
                if self._is_far_ahead():
                    break
                keys.append(self._send(channel))
                waiting.add(len(keys))
            if waiting:
                self._take(connection.receive(1), keys, waiting)
            else:
                time.sleep(BACKLOG_WAIT_S)

    def _is_far_ahead(self) -> bool:
        """Return True if a queue already has many messages."""
        return any(
            sum(len(sender.sent) for sender in account.senders) - len(account.seen) > BACKLOG_MAX
            for account in self._route.accounts
        )

    def _send(self, channel: Channel) -> Key:
        route = self._route
        properties: dict[str, object] = {"delivery_mode": 2}
        lane = due_ms = 0
        if route.has_priorities:
            lane = self.rng.randrange(PRIORITIES)
            properties["priority"] = lane
        if route.has_delays:
            delay_ms = self.rng.randrange(1, DELAY_MS_MAX)
            due_ms = self.clock.now_ms() + delay_ms
            properties["headers"] = {"x-delay": delay_ms}
        label = Label(self.sender.number, len(self.sender.sent) + 1, lane, due_ms)
        self.sender.sent.add(label.key)
        body = encode_body(label, self.rng)
        channel.publish(route.exchange, route.routing_key, body, properties)
        return label.key

    def _take(self, event: Event, keys: list[Key], waiting: set[int]) -> None:
        """Process one answer of the broker."""
        if is_end(event):
            raise NoAnswerError("the connection is gone")
        assert isinstance(event, Method)
        assert event.name in ("basic.ack", "basic.nack"), event
        settled = {event.tag}
        if event.fields["multiple"]:
            settled = {tag for tag in waiting if tag <= event.tag}
        waiting -= settled
        sender = self.sender
        kept = sender.confirmed if event.name == "basic.ack" else sender.refused
        kept.update(keys[tag - 1] for tag in settled)
