"""Transactions that move tokens between two queues: whatever is killed, each token exists once.

A transaction takes tokens from one queue, publishes them to the other and acks the taken ones. It
happens completely or not at all. After an answered commit the tokens are in the new queue. After an
unanswered commit all of them are in the one queue, or all in the other. After a rollback they have
not moved.
"""

from random import Random
from typing import Final

from tests.compat.client import Channel, Method, NoAnswerError, is_method
from tools.chaos.actor import Actor
from tools.chaos.bodies import Label, decode_body, encode_body
from tools.server import Server

TOKENS: Final = 10
MOVED_MAX: Final = 5
QUEUES: Final = ("tokens.left", "tokens.right")
TELLER: Final = 0  # as the sender of its messages

Place = dict[int, str]  # where each token is


class Teller(Actor):
    """One connection that moves tokens."""

    def __init__(self, server: Server, rng: Random) -> None:
        super().__init__("teller", server, rng)
        self.noted: list[str] = []
        self.commits = 0
        self.places: list[Place] = []  # possible states: one, or two while a commit is unanswered

    def set_out(self) -> None:
        """Put every token into the first queue."""
        connection = self.server.connect()
        channel = connection.channel()
        channel.call("tx.select")
        for token in range(TOKENS):
            self._put(channel, QUEUES[0], token)
        channel.call("tx.commit")
        connection.close()
        self.places = [dict.fromkeys(range(TOKENS), QUEUES[0])]

    def work(self) -> None:
        connection = self.server.connect()
        try:
            self.audit(connection.channel(1))
            channel = connection.channel(2)
            channel.call("tx.select")
            while not self.stopping.is_set():
                self._move(channel)
        finally:
            connection.drop()

    def audit(self, channel: Channel) -> None:
        """Check where every token is, and requeue them."""
        found: list[tuple[int, str]] = []
        for queue in QUEUES:
            while (message := channel.get(queue, no_ack=False)) is not None:
                found.append((self._token(message), queue))
        place = dict(found)
        if len(found) != TOKENS or place not in self.places:
            self.noted.append(f"tokens are at {sorted(found)}, not at {self.places}")
        if is_method(channel.call("channel.close", reply_code=200), "channel.close-ok"):
            self.places = [place]

    def _token(self, message: Method) -> int:
        label = decode_body(message.body)
        if label is None:
            self.noted.append("a token is damaged")
            return -1
        return label.number

    def _put(self, channel: Channel, queue: str, token: int) -> None:
        body = encode_body(Label(TELLER, token), self.rng)
        channel.publish("", queue, body, {"delivery_mode": 2})

    def _move(self, channel: Channel) -> None:
        """Run one transaction."""
        source, target = self.rng.sample(QUEUES, 2)
        before = self.places[0]
        after = dict(before)
        for _ in range(self.rng.randrange(1, MOVED_MAX)):
            message = channel.get(source, no_ack=False)
            if message is None:
                break
            token = self._token(message)
            after[token] = target
            self._put(channel, target, token)
            channel.send("basic.ack", delivery_tag=message.tag)
        if self.rng.random() < 0.2:
            self._call(channel, "tx.rollback")
            self._call(channel, "basic.recover", requeue=True)
            return
        self.places = [before, after]
        self._call(channel, "tx.commit")
        self.places = [after]
        self.commits += 1

    def _call(self, channel: Channel, name: str, **fields: object) -> None:
        if not is_method(channel.call(name, **fields), f"{name}-ok"):
            raise NoAnswerError(f"{name} was not answered")
