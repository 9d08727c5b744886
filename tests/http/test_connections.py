"""Connections, channels and consumers over HTTP: list, show and close them."""

import time
from collections.abc import Iterator

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api, add_user, connected, part

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture
def api(server: RunningBroker) -> Api:
    return Api(server)


def wait_for_none(api: Api) -> None:
    """Wait: the broker notices the end of a socket a moment later."""
    end = time.monotonic() + WITHIN_S
    while api.get("connections"):
        assert time.monotonic() < end


def test_connection_is_described(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    properties = {"connection_name": "my name"}
    with connected(server, client_properties=properties, heartbeat=30) as connection:
        connection.channel()
        (listed,) = api.get("connections")
        assert api.get(f"connections/{part(listed['name'])}").keys() == listed.keys()
        assert listed["user_provided_name"] == "my name"
        assert listed["client_properties"]["product"] == "Pika Python Client Library"
        wanted = {
            "user": "guest",
            "vhost": "/",
            "state": "running",
            "protocol": "AMQP 0-9-1",
            "auth_mechanism": "PLAIN",
            "channels": 1,
            "channel_max": 2047,
            "frame_max": 131072,
            "timeout": 30,
            "peer_host": "127.0.0.1",
            "port": server.port,
            "ssl": False,
            "last_heartbeat": None,
        }
        assert {name: listed[name] for name in wanted} == wanted
        assert listed["name"] == f"127.0.0.1:{listed['peer_port']} -> 127.0.0.1:{server.port}"
        assert listed["recv_oct"] > 100 and listed["send_oct"] > 100
        assert listed["recv_cnt"] > 0 and listed["send_cnt"] > 0
        assert api.get("vhosts/%2F/connections")[0]["name"] == listed["name"]
        assert api.get(f"connections/{part(listed['name'])}/sessions") == []
        assert api.get("connections/username/guest") == [
            {"name": listed["name"], "node": "test", "user": "guest", "vhost": "/"}
        ]
        assert api.get("connections/username/nobody") == []


def test_heartbeat_is_noted(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        before = api.get("connections")[0]
        connection._impl._send_frame(pika.frame.Heartbeat())
        connection.process_data_events()
        connection.channel()  # its answer proves that the heartbeat has arrived
        after = api.get("connections")[0]
    assert before["last_heartbeat"] is None
    assert after["last_heartbeat"] >= after["connected_at"]


def test_closing_a_connection_tells_the_client_why(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        name = part(api.get("connections")[0]["name"])
        reason = {"X-Reason": "it was time"}
        assert api.ask("DELETE", f"connections/{name}", None, reason).status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.process_data_events(WITHIN_S)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - it was time"
    assert api.delete(f"connections/{name}") == 404


def test_all_connections_of_a_user_can_be_closed(api: Api, server: RunningBroker) -> None:
    with connected(server) as first, connected(server) as second:
        assert api.delete("connections/username/guest") == 204
        for connection in (first, second):
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="management"):
                connection.process_data_events(WITHIN_S)


def test_channel_is_described_with_its_counts(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=2)
        channel.queue_declare("c", exclusive=True)
        for _ in range(5):
            channel.basic_publish("", "c", b"x")
        channel.basic_publish("", "nobody", b"x")
        method, _, _ = channel.basic_get("c")
        channel.basic_ack(method.delivery_tag)
        channel.basic_get("c", auto_ack=True)
        channel.basic_consume("c", lambda *_: None, consumer_tag="t")
        connection.process_data_events()
        (listed,) = api.get("channels")
        wanted = {
            "number": 1,
            "state": "running",
            "user": "guest",
            "vhost": "/",
            "confirm": True,
            "transactional": False,
            "consumer_count": 1,
            "prefetch_count": 2,
            "global_prefetch_count": 0,
            "messages_unacknowledged": 2,
            "messages_unconfirmed": 0,
            "messages_uncommitted": 0,
            "acks_uncommitted": 0,
            "next_publish_seqno": 7,
            "first_unconfirmed_seqno": None,
        }
        assert {name: listed[name] for name in wanted} == wanted
        stats = listed["message_stats"]
        counts = {name: stats[name] for name in stats if not name.endswith("_details")}
        assert counts == {
            "publish": 6,
            "confirm": 6,
            "return_unroutable": 0,
            "drop_unroutable": 1,
            "deliver": 2,
            "deliver_no_ack": 0,
            "get": 1,
            "get_no_ack": 1,
            "get_empty": 0,
            "ack": 1,
            "redeliver": 0,
            "deliver_get": 4,
        }
        whole = api.get(f"channels/{part(listed['name'])}")
        assert [c["consumer_tag"] for c in whole["consumer_details"]] == ["t"]
        of_connection = f"connections/{part(listed['connection_details']['name'])}/channels"
        assert [c["number"] for c in api.get(of_connection)] == [1]
        assert len(api.get("vhosts/%2F/channels")) == 1


def test_channel_shows_its_transaction(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        channel = connection.channel()
        channel.queue_declare("tx", exclusive=True)
        channel.basic_publish("", "tx", b"x")
        method, _, _ = channel.basic_get("tx")
        channel.tx_select()
        channel.basic_publish("", "tx", b"x")
        channel.basic_ack(method.delivery_tag)
        channel.queue_declare("tx", passive=True)
        (listed,) = api.get("channels")
    assert listed["transactional"] is True
    assert (listed["messages_uncommitted"], listed["acks_uncommitted"]) == (1, 1)


def test_deliveries_without_acks_stay_counted_when_their_consumer_is_gone(
    api: Api, server: RunningBroker
) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        channel = connection.channel()
        channel.queue_declare("n", exclusive=True)
        for _ in range(3):
            channel.basic_publish("", "n", b"x")
        channel.basic_consume("n", lambda *_: None, auto_ack=True, consumer_tag="t")
        before = api.get("channels")[0]["message_stats"]
        channel.basic_cancel("t")
        after = api.get("channels")[0]["message_stats"]
    for stats in (before, after):
        assert (stats["deliver_no_ack"], stats["deliver"], stats["deliver_get"]) == (3, 0, 3)


def test_consumer_is_described(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        channel = connection.channel()
        channel.queue_declare("c", exclusive=True)
        channel.basic_publish("", "c", b"12345")
        channel.basic_qos(prefetch_count=7)
        arguments = {"x-priority": 3, "x-consumer-timeout": 60000}
        channel.basic_consume("c", lambda *_: None, consumer_tag="t", arguments=arguments)
        (listed,) = api.get("consumers")
        assert api.get("consumers/%2F") == [listed]
        assert api.get("queues/%2F/c")["consumer_details"] == [listed]
    assert listed["queue"] == {"name": "c", "vhost": "/"}
    assert listed["channel_details"]["number"] == 1
    assert listed["channel_details"]["user"] == "guest"
    wanted = {
        "consumer_tag": "t",
        "ack_required": True,
        "exclusive": False,
        "active": True,
        "activity_status": "up",
        "prefetch_count": 7,
        "priority": 3,
        "consumer_timeout": 60000,
        "arguments": arguments,
        "messages_unacknowledged": 1,
        "message_bytes_unacknowledged": 5,
        "delivered": 1,
    }
    assert {name: listed[name] for name in wanted} == wanted


def test_waiting_consumer_is_not_active(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    with connected(server) as connection:
        channel = connection.channel()
        channel.queue_declare("s", arguments={"x-single-active-consumer": True}, exclusive=True)
        for tag in ("first", "second"):
            channel.basic_consume("s", lambda *_: None, consumer_tag=tag)
        found = {c["consumer_tag"]: c for c in api.get("consumers")}
        assert api.get("queues/%2F/s")["single_active_consumer_tag"] == "first"
    assert found["first"]["activity_status"] == "single_active"
    assert (found["second"]["active"], found["second"]["activity_status"]) == (False, "waiting")


def test_users_see_connections_of_their_own(api: Api, server: RunningBroker) -> None:
    wait_for_none(api)
    plain = add_user(api, "plain", "management", read=".*")
    monitor = add_user(api, "monitor", "monitoring")
    with connected(server) as connection:
        connection.channel()
        (name,) = [c["name"] for c in monitor.get("connections")]
        assert len(monitor.get("channels")) == 1
        assert plain.get("connections") == [] and plain.get("channels") == []
        assert plain.get("overview")["object_totals"]["connections"] == 0
        for path in (f"connections/{part(name)}", f"connections/{part(name)}/channels"):
            assert plain.ask("GET", path).status == 401
        assert plain.ask("GET", "connections/username/guest").status == 401
        for user in (plain, monitor):
            assert user.delete(f"connections/{part(name)}") == 401
            assert user.delete("connections/username/guest") == 401
    credentials = pika.PlainCredentials("plain", "plain")
    with connected(server, credentials=credentials) as own:
        (listed,) = plain.get("connections")
        assert plain.delete(f"connections/{part(listed['name'])}") == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            own.process_data_events(WITHIN_S)


def test_connections_and_channels_are_found_and_sorted_by_the_names_of_their_clients(
    api: Api, server: RunningBroker
) -> None:
    wait_for_none(api)
    names = ({"connection_name": "b billing"}, {"connection_name": "a orders"})
    with (
        connected(server, client_properties=names[0]) as first,
        connected(server, client_properties=names[1]) as second,
    ):
        for number in (2, 10, 1):
            first.channel(number)
        held = second.channel()
        held.queue_declare("held", exclusive=True)
        held.basic_publish("", "held", b"x")
        held.basic_get("held")

        found = api.get("connections?page=1&name=ILLI")
        assert [c["user_provided_name"] for c in found["items"]] == ["b billing"]
        assert (found["total_count"], found["filtered_count"]) == (2, 1)
        assert len(api.get("connections?name=%5Eguest%24&use_regex=true")) == 2
        assert api.get("connections?name=nobody") == []
        found = api.get("connections?sort=user_provided_name&columns=user_provided_name")
        assert [c["user_provided_name"] for c in found] == ["a orders", "b billing"]
        found = api.get("connections?sort=channels&sort_reverse=true&columns=channels")
        assert [c["channels"] for c in found] == [3, 1]

        shown = "connection_details.user_provided_name"
        found = api.get(f"channels?sort={shown}&columns=number,{shown}")
        assert [(c["connection_details"]["user_provided_name"], c["number"]) for c in found] == [
            ("a orders", 1),
            ("b billing", 1),
            ("b billing", 2),
            ("b billing", 10),
        ]
        assert len(api.get("channels?name=billing")) == 3
        (holder,) = api.get("channels?only=with_unacknowledged")
        assert holder["messages_unacknowledged"] == 1


def test_exchanges_are_listed_in_order_and_can_be_limited_to_those_of_users(api: Api) -> None:
    for name in ("zebra", "apple"):
        api.put(f"exchanges/%2F/{name}", {"type": "fanout"})
    names = [exchange["name"] for exchange in api.get("exchanges/%2F")]
    assert names == sorted(names)
    found = api.get("exchanges/%2F?only=user_defined&columns=name&page=1&page_size=1")
    assert (found["items"], found["filtered_count"]) == ([{"name": "apple"}], 2)
    found = api.get("exchanges?sort=type&sort_reverse=true&columns=type")
    assert found[0]["type"] == "topic"
