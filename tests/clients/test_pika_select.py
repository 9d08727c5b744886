"""pika's SelectConnection: the same broker through callbacks, with confirms and a reconnect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
from pika.exchange_type import ExchangeType

from tests.clients.relay import Relay

Address = tuple[str, int]
Fresh = Callable[[str], str]
WAIT_S = 60


class Session:
    """A SelectConnection that opens a channel, runs `on_channel` and stops on close."""

    def __init__(self, address: Address, on_channel: Callable[[Session], None]) -> None:
        self.closing: BaseException | None = None
        self.channel: Any = None
        self._on_channel = on_channel
        host, port = address
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(host, port),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_close,
            on_close_callback=self._on_close,
        )

    def run(self) -> None:
        ioloop = self.connection.ioloop
        ioloop.call_later(WAIT_S, self._on_late)
        ioloop.start()
        ioloop.close()

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel_open)

    def _on_channel_open(self, channel: Any) -> None:
        self.channel = channel
        self._on_channel(self)

    def _on_close(self, _connection: Any, reason: BaseException) -> None:
        self.closing = reason
        self.connection.ioloop.stop()

    def _on_late(self) -> None:
        self.closing = TimeoutError(f"nothing happened in {WAIT_S} s")
        self.connection.ioloop.stop()


def test_publish_with_confirms_then_consume(amqp_address: Address, fresh: Fresh) -> None:
    exchange, queue = fresh("events"), fresh("listener")
    confirmed: list[str] = []
    received: list[bytes] = []

    def on_channel(session: Session) -> None:
        session.channel.exchange_declare(
            exchange, ExchangeType.topic, callback=lambda _: declare(session)
        )

    def declare(session: Session) -> None:
        session.channel.queue_declare(queue, callback=lambda _: bind(session))

    def bind(session: Session) -> None:
        session.channel.queue_bind(queue, exchange, "event.*", callback=lambda _: start(session))

    def start(session: Session) -> None:
        session.channel.confirm_delivery(
            lambda frame: confirmed.append(frame.method.NAME), callback=lambda _: publish(session)
        )

    def publish(session: Session) -> None:
        for number in range(20):
            session.channel.basic_publish(exchange, f"event.{number}", bytes([number]))
        session.channel.basic_consume(queue, lambda *delivery: on_message(session, *delivery))

    def on_message(session: Session, channel: Any, method: Any, _: Any, body: bytes) -> None:
        received.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(received) == 20:
            session.connection.close()

    session = Session(amqp_address, on_channel)
    session.run()
    assert isinstance(session.closing, pika.exceptions.ConnectionClosedByClient), session.closing
    assert received == [bytes([number]) for number in range(20)]
    assert set(confirmed) == {"Basic.Ack"}


def test_channel_close_carries_the_code(amqp_address: Address) -> None:
    reasons: list[Any] = []

    def on_channel(session: Session) -> None:
        session.channel.add_on_close_callback(lambda _, reason: on_closed(session, reason))
        session.channel.exchange_declare("clients.missing", passive=True)

    def on_closed(session: Session, reason: Any) -> None:
        reasons.append(reason)
        session.connection.close()

    Session(amqp_address, on_channel).run()
    assert [reason.reply_code for reason in reasons] == [404]


def test_connection_close_by_the_broker_carries_the_code(amqp_address: Address) -> None:
    # Stopping the flow is AMQP that RabbitMQ refuses: an error of the whole connection.
    session = Session(amqp_address, lambda session: session.channel.flow(False))
    session.run()
    assert isinstance(session.closing, pika.exceptions.ConnectionClosedByBroker), session.closing
    assert session.closing.reply_code == 540


def test_crossing_channel_closes_leave_the_connection_open(amqp_address: Address) -> None:
    """The client closes its channel while the broker closes it for an error."""
    reopened: list[int] = []

    def on_channel(session: Session) -> None:
        session.channel.add_on_close_callback(lambda *_: reopen(session))
        session.channel.basic_publish("clients.missing", "", b"")
        session.channel.close()

    def reopen(session: Session) -> None:
        # pika forgets the number of a closed channel only after this callback.
        session.connection.ioloop.call_later(
            0, lambda: session.connection.channel(1, on_open_callback=on_reopened)
        )

    def on_reopened(channel: Any) -> None:
        reopened.append(channel.channel_number)
        channel.connection.close()

    session = Session(amqp_address, on_channel)
    session.run()
    assert isinstance(session.closing, pika.exceptions.ConnectionClosedByClient), session.closing
    assert reopened == [1]


def test_lost_line_is_told_and_a_new_connection_works(relay: Relay) -> None:
    first = Session(relay.address, lambda _: relay.cut())
    first.run()
    assert isinstance(first.closing, pika.exceptions.AMQPConnectionError)
    second = Session(relay.address, lambda session: session.connection.close())
    second.run()
    assert isinstance(second.closing, pika.exceptions.ConnectionClosedByClient)
