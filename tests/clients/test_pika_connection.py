"""pika's BlockingConnection: errors and their codes, transactions, heartbeats, many channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.clients.relay import Relay

Address = tuple[str, int]
Fresh = Callable[[str], str]
WAIT_S = 60


def connect(address: Address, **options: Any) -> pika.BlockingConnection:
    host, port = address
    return pika.BlockingConnection(pika.ConnectionParameters(host, port, **options))


@pytest.fixture
def connection(amqp_address: Address) -> Iterator[pika.BlockingConnection]:
    connection = connect(amqp_address)
    yield connection
    if connection.is_open:
        connection.close()


def test_capabilities_that_clients_look_at(connection: pika.BlockingConnection) -> None:
    assert connection.basic_nack_supported
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported
    assert connection.publisher_confirms_supported


def test_blocked_callbacks_can_be_registered(amqp_address: Address) -> None:
    with closing(connect(amqp_address, blocked_connection_timeout=5)) as connection:
        connection.add_on_connection_blocked_callback(lambda *_: None)
        connection.add_on_connection_unblocked_callback(lambda *_: None)
        connection.process_data_events()
        assert connection.is_open


def test_channel_error_leaves_the_connection_and_a_new_channel_works(
    connection: pika.BlockingConnection,
) -> None:
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("clients.missing", passive=True)
    assert caught.value.reply_code == 404
    assert caught.value.reply_text == "NOT_FOUND - no queue 'clients.missing' in vhost '/'"
    assert channel.is_closed
    reopened = connection.channel(channel.channel_number)
    assert reopened.queue_declare("", exclusive=True).method.queue


def test_redeclaring_differently_is_a_precondition_failure(
    connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    name = fresh("inequivalent")
    connection.channel().queue_declare(name, durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().queue_declare(name, durable=False)
    assert caught.value.reply_code == 406
    assert "inequivalent arg 'durable'" in caught.value.reply_text


def test_unknown_delivery_tag_closes_the_channel(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.basic_ack(99)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert (caught.value.reply_code, caught.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - unknown delivery tag 99",
    )


def test_publishing_to_a_missing_exchange_with_confirms(
    connection: pika.BlockingConnection,
) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_publish("clients.missing", "", b"")
    assert caught.value.reply_code == 404


def test_exclusive_queue_is_locked_to_others_and_goes_with_its_connection(
    amqp_address: Address, connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    name = fresh("exclusive")
    with closing(connect(amqp_address)) as owner:
        owner.channel().queue_declare(name, exclusive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            connection.channel().basic_get(name)
        assert caught.value.reply_code == 405
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().queue_declare(name, passive=True)
    assert caught.value.reply_code == 404


def test_exclusive_consumer_refuses_a_second_one(
    connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    name = fresh("single")
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_consume(name, lambda *_: None, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().basic_consume(name, lambda *_: None)
    assert caught.value.reply_code == 403
    assert "exclusive use" in caught.value.reply_text


def test_bad_password_is_an_authentication_error(amqp_address: Address) -> None:
    credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as caught:
        connect(amqp_address, credentials=credentials)
    assert "403" in str(caught.value)


def test_missing_vhost_is_refused(amqp_address: Address) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as caught:
        connect(amqp_address, virtual_host="clients.missing")
    assert "(530) 'NOT_ALLOWED - vhost clients.missing not found'" in str(caught.value)


def test_forbidden_frame_closes_the_connection_with_its_code(
    connection: pika.BlockingConnection,
) -> None:
    """A consumer tag used twice is an error of the connection."""
    channel = connection.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_consume(name, lambda *_: None, consumer_tag="twice")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        # pika itself refuses a tag that it knows; its lower layer is told to forget this one.
        channel._impl._consumers.pop("twice")
        channel._consumer_infos.pop("twice")
        channel.basic_consume(name, lambda *_: None, consumer_tag="twice")
    assert caught.value.reply_code == 530
    assert connection.is_closed


def test_closing_with_a_code_and_a_text(amqp_address: Address) -> None:
    connection = connect(amqp_address)
    channel = connection.channel()
    connection.close(reply_code=320, reply_text="maintenance")
    assert channel.is_closed
    assert connection.is_closed


def test_transaction_publishes_and_acks_on_commit_only(
    connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    name = fresh("tx")
    channel, watcher = connection.channel(), connection.channel()
    channel.queue_declare(name)
    channel.tx_select()
    channel.basic_publish("", name, b"undone")
    channel.tx_rollback()
    channel.basic_publish("", name, b"done")
    assert watcher.queue_declare(name, passive=True).method.message_count == 0
    channel.tx_commit()
    method, _, body = channel.basic_get(name)
    assert body == b"done"
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()
    assert watcher.queue_declare(name, passive=True).method.message_count == 0


def test_commit_outside_of_a_transaction_is_an_error(connection: pika.BlockingConnection) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().tx_commit()
    assert caught.value.reply_code == 406


def test_unacked_messages_return_when_the_connection_is_lost(
    relay: Relay, connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    name = fresh("returned")
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_publish("", name, b"kept")
    loser = connect(relay.address)
    assert loser.channel().basic_get(name)[2] == b"kept"
    relay.cut()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        loser.channel()
    for method, _, body in channel.consume(name, inactivity_timeout=WAIT_S):
        assert (body, method.redelivered) == (b"kept", True)
        channel.basic_ack(method.delivery_tag)
        break


def test_idle_connection_lives_by_heartbeats(amqp_address: Address) -> None:
    with closing(connect(amqp_address, heartbeat=2)) as connection:
        connection.process_data_events(time_limit=7)
        assert connection.channel().is_open


def test_silent_client_is_cut_off(relay: Relay) -> None:
    """The client promises a heartbeat a second and sends none."""
    silent = connect(relay.address, heartbeat=1)
    assert relay.broker_hung_up.wait(WAIT_S)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        silent.process_data_events(time_limit=WAIT_S)
        silent.channel()


def test_a_thousand_channels_on_one_connection(
    connection: pika.BlockingConnection, fresh: Fresh
) -> None:
    name = fresh("thousand")
    connection.channel().queue_declare(name)
    channels = [connection.channel() for _ in range(1000)]
    for number, channel in enumerate(channels):
        channel.basic_publish("", name, str(number).encode())
    bodies: set[bytes] = set()
    for _, _, body in channels[0].consume(name, auto_ack=True, inactivity_timeout=WAIT_S):
        bodies.add(body)
        if len(bodies) == 1000:
            break
    assert bodies == {str(number).encode() for number in range(1000)}


def test_many_connections_come_and_go(amqp_address: Address) -> None:
    connections = [connect(amqp_address) for _ in range(50)]
    for connection in connections:
        assert connection.channel().queue_declare("", exclusive=True).method.queue
    for connection in connections:
        connection.close()


def test_update_secret_is_answered(connection: pika.BlockingConnection) -> None:
    connection.update_secret("guest", "rotation")
    assert connection.channel().is_open


def test_flow_on_is_answered(connection: pika.BlockingConnection) -> None:
    assert connection.channel().flow(True) is True
