"""Where a situation is played: one broker, names of the case's own, and the clearing up.

A stage gives out connections, channels and names. Names are unique for each play and are masked
in the observation (`compat-…-q` is written `q`), so that cases can run side by side and be
compared across brokers. Whatever bears such a name is deleted when the case is over.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.compat.client import (
    ANSWER_S,
    Channel,
    Connection,
    Event,
    Handshake,
    Method,
    NoAnswerError,
    connect,
    is_end,
    is_method,
)

_GENERATED: Final = re.compile(r"(amq\.gen-|amq\.ctag-)[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")
_REPLY_NAME: Final = re.compile(r"amq\.rabbitmq\.reply-to\.[^\s']+")
POLL_S: Final = 0.01


class Stage:
    """One play of a case against the broker at host and port."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._prefix = f"compat-{secrets.token_hex(4)}-"
        self._names: dict[str, str] = {}
        self._connections: list[Connection] = []
        self._first: Connection | None = None
        self._channel_count = 0
        self._confirming: list[Channel] = []

    # --- names and connections ---

    def name(self, suffix: str = "q") -> str:
        """The case's name for a queue or exchange; the same for the same suffix."""
        return self._names.setdefault(suffix, self._prefix + suffix)

    def raw(self, *, answer_s: float = ANSWER_S) -> Connection:
        """A TCP connection on which nothing was said yet."""
        connection = Connection(self.host, self.port, answer_s=answer_s)
        self._connections.append(connection)
        return connection

    def connect(self, options: Handshake | None = None) -> Connection:
        """A further open connection."""
        connection = connect(self.host, self.port, options)
        self._connections.append(connection)
        return connection

    def channel(self) -> Channel:
        """A further channel on the first connection."""
        if self._first is None:
            self._first = self.connect()
        self._channel_count += 1
        return self._first.channel(self._channel_count)

    # --- set-up that must succeed ---

    def queue(
        self,
        channel: Channel,
        suffix: str = "q",
        arguments: Mapping[str, object] | None = None,
        **flags: object,
    ) -> str:
        """Declares a queue of the case and returns its name."""
        name = self.name(suffix)
        self.require(channel.call("queue.declare", queue=name, arguments=arguments or {}, **flags))
        return name

    def quorum(
        self,
        channel: Channel,
        suffix: str = "q",
        arguments: Mapping[str, object] | None = None,
    ) -> str:
        """Declares a quorum queue of the case and returns its name."""
        given = {"x-queue-type": "quorum", **(arguments or {})}
        return self.queue(channel, suffix, given, durable=True)

    def exchange(
        self,
        channel: Channel,
        kind: str = "fanout",
        suffix: str = "x",
        arguments: Mapping[str, object] | None = None,
        **flags: object,
    ) -> str:
        """Declares an exchange of the case and returns its name."""
        name = self.name(suffix)
        self.require(
            channel.call(
                "exchange.declare", exchange=name, type=kind, arguments=arguments or {}, **flags
            )
        )
        return name

    def bind(
        self,
        channel: Channel,
        queue: str,
        exchange: str,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.require(
            channel.call(
                "queue.bind",
                queue=queue,
                exchange=exchange,
                routing_key=key,
                arguments=arguments or {},
            )
        )

    def consume(self, channel: Channel, queue: str, tag: str = "t", **fields: object) -> None:
        self.require(channel.call("basic.consume", queue=queue, consumer_tag=tag, **fields))

    def require(self, answer: Event) -> Method:
        """The answer, which must not be a close."""
        if is_end(answer) or not isinstance(answer, Method):
            raise NoAnswerError(f"set-up was refused: {answer}")
        return answer

    # --- publishing ---

    def put(
        self,
        channel: Channel,
        exchange: str,
        key: str,
        *texts: str,
        properties: Mapping[str, object] | None = None,
        **flags: object,
    ) -> list[Event]:
        """Publishes texts one by one, each confirmed before the next; returns the confirms.

        A confirmed message is in its queues and on its way to their consumers, so that a round
        trip on a consumer's channel comes behind its delivery.
        """
        if channel not in self._confirming:
            self.require(channel.call("confirm.select"))
            self._confirming.append(channel)
        confirms: list[Event] = []
        for text in texts or ("x",):
            channel.publish(exchange, key, text.encode(), properties, **flags)
            confirms.append(self.confirm(channel))
        return confirms

    def confirm(self, channel: Channel) -> Event:
        """The next confirm on a channel, or its close; other events are kept."""
        while True:
            event = channel.connection.receive(channel.number)
            if is_end(event) or is_method(event, "basic.ack", "basic.nack"):
                return event
            channel.events.append(event)

    def put_and_get(self, channel: Channel, queue: str) -> Method:
        """Publishes a message and takes it in one write, so that it cannot expire in between."""
        with channel.connection.one_write():
            channel.publish("", queue, b"x")
            channel.send("basic.get", queue=queue)
        return self.require(channel.reply("basic.get"))

    def consumed_queue(self, channel: Channel, expires_ms: int) -> str:
        """Declares a queue that expires and consumes it in one write, so that it is never idle."""
        name = self.name()
        with channel.connection.one_write():
            channel.send("queue.declare", queue=name, arguments={"x-expires": expires_ms})
            channel.send("basic.consume", queue=name, consumer_tag="t")
        self.require(channel.reply("queue.declare"))
        self.require(channel.reply("basic.consume"))
        return name

    # --- looking ---

    def count(self, queue: str, channel: Channel, want: int) -> int:
        """The number of ready messages, asked for until it is as wanted or a while has passed."""
        deadline_s = time.monotonic() + ANSWER_S
        while True:
            answer = self.require(channel.call("queue.declare", queue=queue, passive=True))
            number = answer.fields["message_count"]
            assert isinstance(number, int)
            if number == want or time.monotonic() > deadline_s:
                return number
            time.sleep(POLL_S)

    def exists(self, queue: str) -> bool:
        """Whether a queue is there, asked on a channel of its own."""
        channel = self.channel()
        answer = channel.call("queue.declare", queue=queue, passive=True)
        return is_method(answer, "queue.declare-ok")

    def expired(self, queue: str, idle_s: float) -> bool:
        """Whether a queue goes when it is left alone for `idle_s`.

        A broker that was held up may answer before it looks at its clock, and each question counts
        as use. So the queue is left alone and asked about several times.
        """
        deadline_s = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline_s:
            time.sleep(idle_s)
            if not self.exists(queue):
                return True
        return False

    def until(self, wanted: Callable[[], bool], what: str, wait_s: float = ANSWER_S) -> None:
        """Waits for something that a broker does by itself."""
        deadline_s = time.monotonic() + wait_s
        while not wanted():
            if time.monotonic() > deadline_s:
                raise NoAnswerError(f"{what} did not happen in {wait_s} s")
            time.sleep(POLL_S)

    def drain(self, channel: Channel, queue: str, most: int = 1000) -> list[Method]:
        """All ready messages of a queue, taken by basic.get without acknowledgement."""
        messages: list[Method] = []
        while len(messages) < most:
            message = channel.get(queue)
            if message is None:
                break
            messages.append(message)
        return messages

    # --- after the play ---

    def mask(self, line: str) -> str:
        """An observation without what differs from run to run."""
        line = _GENERATED.sub(r"\1*", line.replace(self._prefix, ""))
        return _REPLY_NAME.sub("amq.rabbitmq.reply-to.*", line)

    def clear(self) -> None:
        """Closes the case's connections and deletes what bears its names."""
        for connection in self._connections:
            with contextlib.suppress(NoAnswerError, OSError, ValueError):
                if connection.ended is None and connection.channel_max:
                    connection.answer_s = 1.0
                    connection.close()
            connection.drop()
        if self._names:
            with contextlib.suppress(NoAnswerError, OSError):
                self._delete_names()

    def _delete_names(self) -> None:
        connection = connect(self.host, self.port)
        for number, name in enumerate(self._names.values(), start=1):
            channel = connection.channel(number)
            channel.send("exchange.delete", exchange=name, nowait=True)
            channel.call("queue.delete", queue=name)
        connection.close()
