"""RabbitMQ's management API: exchanges, queues, bindings, publish and get, lists, health."""

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.cli.ctl.status import show_status
from leveret.cli.shared.management import ManagementClient
from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api, connected, part


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture
def api(server: RunningBroker) -> Iterator[Api]:
    """Return an API, and empty its vhost afterwards."""
    api = Api(server)
    yield api
    for queue in api.get("queues/%2F?columns=name"):
        api.delete(f"queues/%2F/{part(queue['name'])}")
    for exchange in api.get("exchanges/%2F?columns=name"):
        if exchange["name"] and not exchange["name"].startswith("amq."):
            api.delete(f"exchanges/%2F/{part(exchange['name'])}")


def publish(api: Api, key: str, payload: str = "x", **more: Any) -> Any:
    body = {"routing_key": key, "payload": payload, "payload_encoding": "string", **more}
    body.setdefault("properties", {})
    answer = api.post("exchanges/%2F/amq.default/publish", body)
    assert answer.status == 200, answer.data
    return answer.json


def get(api: Api, queue: str, ackmode: str = "ack_requeue_true", **more: Any) -> Any:
    body = {"count": 10, "ackmode": ackmode, "encoding": "auto", **more}
    answer = api.post(f"queues/%2F/{queue}/get", body)
    assert answer.status == 200, answer.data
    return answer.json


def test_an_empty_name_of_an_exchange_is_the_default_one(api: Api) -> None:
    api.put("queues/%2F/q")
    assert api.post("exchanges/%2F//publish", {"routing_key": "q", "payload": "x"}).json == {
        "routed": True
    }
    named = api.get("bindings/%2F/e/amq.default/q/q")
    assert named == api.get("bindings/%2F/e//q/q")
    assert api.get("queues/%2F/q")["messages"] == 1


def test_a_slash_at_the_end_names_the_list(api: Api) -> None:
    api.put("queues/%2F/q")
    assert [queue["name"] for queue in api.get("queues/?columns=name")] == ["q"]
    assert [queue["name"] for queue in api.get("queues/%2F/?columns=name")] == ["q"]
    assert api.delete("queues/%2F/") == 405


@pytest.mark.parametrize(("key", "path"), [("a.*", "a.*"), ("(b)!", "(b)!")])
def test_a_binding_is_found_by_its_routing_key_as_it_is(api: Api, key: str, path: str) -> None:
    api.put("queues/%2F/q")
    for other in (key, "other", "~"):
        assert api.post("bindings/%2F/e/amq.topic/q/q", {"routing_key": other}).status == 201
    binding = f"bindings/%2F/e/amq.topic/q/q/{path}"
    assert api.get(binding)["routing_key"] == key
    assert api.delete(binding) == 204
    assert api.ask("GET", binding).status == 404
    assert api.ask("GET", "bindings/%2F/e/amq.topic/q/q/~").status == 404


def test_put_and_post_name_the_missing_object(api: Api) -> None:
    api.put("queues/%2F/q")
    for path, reason in (
        ("bindings/%2F/e/none/q/q", "no exchange 'none' in vhost '/'"),
        ("bindings/%2F/e/amq.direct/q/none", "no queue 'none' in vhost '/'"),
    ):
        answer = api.post(path, {"routing_key": "k"})
        assert (answer.status, answer.json) == (404, {"error": "not_found", "reason": reason})


def test_put_answers_201_or_204_and_takes_flags_as_text(api: Api) -> None:
    assert api.put("queues/%2F/q", {"durable": "true", "auto_delete": "false"}) == 201
    assert api.put("queues/%2F/q", {"durable": True, "node": "ignored", "name": "q"}) == 204
    queue = api.get("queues/%2F/q")
    assert (queue["durable"], queue["auto_delete"], queue["exclusive"]) == (True, False, False)
    assert api.delete("queues/%2F/q") == 204
    assert api.delete("queues/%2F/q") == 404


def test_put_with_other_arguments_is_refused_with_the_text_of_amqp(api: Api) -> None:
    api.put("queues/%2F/q", {"durable": True})
    answer = api.ask("PUT", "queues/%2F/q", {"durable": True, "arguments": {"x-expires": 1000}})
    assert answer.status == 400
    assert answer.json["error"] == "bad_request"
    assert answer.json["reason"].startswith("inequivalent arg 'x-expires' for queue 'q'")


@pytest.mark.parametrize(
    "body",
    [
        {"durable": "yes"},
        {"arguments": []},
        {"arguments": {"x-expires": 0}},
        {"arguments": {"x" * 300: 1}},
        {"arguments": {"x": 1 << 70}},
        b"not json",
    ],
)
def test_invalid_queue_is_refused(api: Api, body: object) -> None:
    answer = api.ask("PUT", "queues/%2F/bad", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert api.ask("GET", "queues/%2F/bad").status == 404


def test_names_that_amqp_cannot_carry_are_refused(api: Api) -> None:
    assert api.put(f"queues/%2F/{'q' * 256}") == 400
    assert api.put(f"exchanges/%2F/{'x' * 256}") == 400
    assert api.put(f"queues/%2F/{'q' * 255}") == 201


def test_reserved_names_are_not_authorised(api: Api) -> None:
    answer = api.ask("PUT", "queues/%2F/amq.mine", {})
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")
    assert api.put("exchanges/%2F/amq.mine") == 401
    assert api.delete("exchanges/%2F/amq.topic") == 401
    assert api.put("exchanges/%2F/amq.default") == 401


def test_delete_can_ask_for_an_unused_and_an_empty_queue(api: Api, server: RunningBroker) -> None:
    api.put("queues/%2F/q")
    publish(api, "q")
    assert api.delete("queues/%2F/q?if-empty=true") == 400
    with connected(server) as connection:
        channel = connection.channel()
        channel.basic_consume("q", lambda *_: None)
        assert api.delete("queues/%2F/q?if-unused=true") == 400
    assert api.delete("queues/%2F/q?if-unused=true") == 204


def test_exclusive_queues_of_others_are_locked(api: Api, server: RunningBroker) -> None:
    with connected(server) as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        assert api.get("queues/%2F/mine")["exclusive"] is True
        assert api.get("queues/%2F/mine")["owner_pid_details"]["peer_host"] == "127.0.0.1"
        assert api.delete("queues/%2F/mine") == 400
        assert api.ask("DELETE", "queues/%2F/mine/contents").status == 400
        assert api.post("bindings/%2F/e/amq.topic/q/mine").status == 400


def test_exchange_is_declared_shown_and_deleted(api: Api) -> None:
    body = {"type": "topic", "durable": "true", "internal": "false", "arguments": {"a": 1}}
    assert api.put("exchanges/%2F/x", body) == 201
    assert api.put("exchanges/%2F/x", body) == 204
    answer = api.ask("PUT", "exchanges/%2F/x", {**body, "type": "fanout"})
    assert answer.status == 400
    assert "inequivalent arg 'type' for exchange 'x'" in answer.json["reason"]
    assert api.put("exchanges/%2F/y", {"type": "nonesuch"}) == 400
    found = api.get("exchanges/%2F/x")
    assert (found["type"], found["durable"], found["internal"]) == ("topic", True, False)
    assert (found["arguments"], found["incoming"], found["outgoing"]) == ({"a": 1}, [], [])
    api.put("queues/%2F/q")
    api.post("bindings/%2F/e/x/q/q", {"routing_key": "k"})
    assert api.delete("exchanges/%2F/x?if-unused=true") == 400
    assert api.delete("exchanges/%2F/x") == 204
    assert api.delete("exchanges/%2F/x") == 404


def test_default_exchange_is_amq_default_in_paths(api: Api) -> None:
    assert api.get("exchanges/%2F/amq.default")["name"] == ""
    assert [x["name"] for x in api.get("exchanges/%2F")][:2] == ["", "amq.direct"]


def test_binding_is_named_by_its_properties_key(api: Api) -> None:
    api.put("exchanges/%2F/x", {"type": "headers"})
    api.put("queues/%2F/q")
    made = api.post("bindings/%2F/e/x/q/q", {"routing_key": "a b~/é", "arguments": {"k": "v"}})
    assert made.status == 201
    (bound,) = api.get("bindings/%2F/e/x/q/q")
    assert bound["routing_key"] == "a b~/é"
    assert bound["arguments"] == {"k": "v"}
    assert bound["properties_key"].startswith("a%20b%7E%2F%C3%A9~")
    location = f"bindings/%2F/e/x/q/{made.headers['Location']}"
    assert api.get(location) == bound
    # Some clients encode the key once more.
    assert api.get(f"bindings/%2F/e/x/q/q/{bound['properties_key']}") == bound
    assert api.delete(location) == 204
    assert api.delete(location) == 404


def test_properties_key_of_a_plain_binding(api: Api) -> None:
    api.put("queues/%2F/q")
    for key, named in (("", "~"), ("k", "k"), ("a.*", "a.%2A")):
        api.post("bindings/%2F/e/amq.topic/q/q", {"routing_key": key, "arguments": {}})
        found = api.get("bindings/%2F/e/amq.topic/q/q")
        assert found[-1]["properties_key"] == named


def test_bindings_of_two_argument_sets_have_two_keys(api: Api) -> None:
    api.put("queues/%2F/q")
    for value in (1, 2):
        api.post("bindings/%2F/e/amq.match/q/q", {"arguments": {"n": value}})
    keys = {b["properties_key"] for b in api.get("bindings/%2F/e/amq.match/q/q")}
    assert len(keys) == 2


def test_bindings_are_listed_by_source_destination_queue_and_vhost(api: Api) -> None:
    api.put("exchanges/%2F/x")
    api.put("queues/%2F/q")
    api.post("bindings/%2F/e/x/q/q", {"routing_key": "k"})
    api.post("bindings/%2F/e/amq.fanout/e/x", {"routing_key": ""})
    to_queue = {"source": "x", "destination": "q", "destination_type": "queue"}
    implicit = {"source": "", "destination": "q", "routing_key": "q"}
    to_exchange = {"source": "amq.fanout", "destination": "x", "destination_type": "exchange"}
    for path, wanted in (
        ("exchanges/%2F/x/bindings/source", [to_queue]),
        ("exchanges/%2F/x/bindings/destination", [to_exchange]),
        ("queues/%2F/q/bindings", [implicit, to_queue]),
        ("bindings/%2F/e/amq.default/q/q", [implicit]),
        ("bindings/%2F", [implicit, to_exchange, to_queue]),
        ("bindings", [implicit, to_exchange, to_queue]),
    ):
        found = api.get(path)
        assert len(found) == len(wanted), path
        for shown, expected in zip(found, wanted, strict=True):
            assert {key: shown[key] for key in expected} == expected, path


def test_binding_a_missing_object_is_a_404(api: Api) -> None:
    api.put("queues/%2F/q")
    assert api.post("bindings/%2F/e/none/q/q").status == 404
    assert api.post("bindings/%2F/e/amq.topic/q/none").status == 404
    assert api.post("bindings/%2F/e/amq.topic/z/q").status == 404
    assert api.post("bindings/%2F/e/amq.default/q/q").status == 401


def test_publish_says_whether_it_was_routed(api: Api) -> None:
    api.put("queues/%2F/q")
    assert publish(api, "q") == {"routed": True}
    assert publish(api, "nobody") == {"routed": False}


def test_published_properties_are_got(api: Api) -> None:
    api.put("queues/%2F/q")
    properties = {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "headers": {"a": 1, "b": [True, "x"], "c": {"d": None}},
        "correlation_id": "c",
        "message_id": "m",
        "timestamp": 1234,
        "expiration": "60000",
        "type": "t",
        "app_id": "app",
        "user_id": "guest",
    }
    publish(api, "q", "grüß", properties=properties)
    (message,) = get(api, "q")
    assert message["properties"] == properties
    assert (message["payload"], message["payload_encoding"]) == ("grüß", "string")
    assert (message["payload_bytes"], message["message_count"]) == (6, 0)
    assert (message["exchange"], message["routing_key"]) == ("", "q")


def test_base64_payload_may_have_line_breaks(api: Api) -> None:
    api.put("queues/%2F/q")
    publish(api, "q", "aGVsbG8g\r\nd29y\nbGQ=\n", payload_encoding="base64")
    (message,) = get(api, "q")
    assert message["payload"] == "hello world"


def test_base64_payload_is_published_and_got(api: Api) -> None:
    api.put("queues/%2F/q")
    publish(api, "q", "//4=", payload_encoding="base64")
    (message,) = get(api, "q")
    assert (message["payload"], message["payload_encoding"]) == ("//4=", "base64")
    publish(api, "q", "text")
    (_, second) = get(api, "q", encoding="base64", truncate=2)
    assert (second["payload"], second["payload_bytes"]) == ("dGU=", 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"payload": None}, "payload"),
        ({"payload_encoding": "rot13"}, "payload_encoding"),
        ({"payload": "!", "payload_encoding": "base64"}, "payload is not base64"),
        ({"properties": {"expiration": "x"}}, "406 PRECONDITION_FAILED - invalid expiration"),
        ({"properties": {"user_id": "other"}}, "406 PRECONDITION_FAILED - user_id property"),
        ({"properties": {"headers": {"x": 1 << 70}}}, "does not fit 64 bits"),
        ({"properties": {"reply_to": "amq.rabbitmq.reply-to"}}, "fast reply consumer"),
        ({"routing_key": "k" * 256}, "routing_key has more than 255 bytes"),
    ],
)
def test_invalid_publish_is_refused(api: Api, change: Any, reason: str) -> None:
    body = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}
    answer = api.post("exchanges/%2F/amq.default/publish", {**body, **change})
    assert answer.status == 400
    assert reason in answer.json["reason"]


def test_publish_to_a_missing_or_internal_exchange_has_the_code_of_amqp(api: Api) -> None:
    body = {"routing_key": "q", "payload": "x"}
    missing = api.post("exchanges/%2F/none/publish", body)
    assert missing.status == 400
    assert missing.json["reason"] == "404 NOT_FOUND - no exchange 'none' in vhost '/'"
    internal = api.post("exchanges/%2F/amq.rabbitmq.trace/publish", body)
    assert internal.json["reason"].startswith("403 ACCESS_REFUSED - cannot publish to internal")


def test_publish_to_a_full_queue_is_refused(api: Api) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    api.put("queues/%2F/q", {"arguments": arguments})
    publish(api, "q")
    answer = api.post("exchanges/%2F/amq.default/publish", {"routing_key": "q", "payload": "x"})
    assert (answer.status, "full" in answer.json["reason"]) == (400, True)


@pytest.mark.parametrize(
    ("ackmode", "left", "redelivered"),
    [
        ("ack_requeue_true", ["a", "b"], True),
        ("reject_requeue_true", ["a", "b"], True),
        ("ack_requeue_false", [], False),
        ("reject_requeue_false", [], False),
    ],
)
def test_get_settles_as_ackmode_says(
    api: Api, ackmode: str, left: list[str], redelivered: bool
) -> None:
    api.put("queues/%2F/q")
    for payload in ("a", "b"):
        publish(api, "q", payload)
    taken = get(api, "q", ackmode, count="5")
    assert [m["payload"] for m in taken] == ["a", "b"]
    assert [m["message_count"] for m in taken] == [1, 0]
    assert not any(m["redelivered"] for m in taken)
    after = get(api, "q")
    assert [m["payload"] for m in after] == left
    assert all(m["redelivered"] is redelivered for m in after)
    assert api.get("queues/%2F/q")["messages_unacknowledged"] == 0


def test_rejected_get_is_dead_lettered(api: Api) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put("queues/%2F/q", {"arguments": arguments})
    api.put("queues/%2F/dead")
    publish(api, "q", "x")
    get(api, "q", "reject_requeue_false")
    (dead,) = get(api, "dead")
    death = dead["properties"]["headers"]["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 1)


def test_get_requires_all_its_keys(api: Api) -> None:
    api.put("queues/%2F/q")
    for body in ({"count": 1}, {"count": 1, "ackmode": "none", "encoding": "auto"}):
        answer = api.post("queues/%2F/q/get", body)
        assert (answer.status, answer.json["error"]) == (400, "bad_request")
    whole = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert api.post("queues/%2F/none/get", whole).status == 404


def test_stream_cannot_be_got_or_purged(api: Api) -> None:
    api.put("queues/%2F/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert api.post("queues/%2F/s/get", body).status == 400
    assert api.ask("DELETE", "queues/%2F/s/contents").status == 400


def test_purge_answers_how_many(api: Api) -> None:
    api.put("queues/%2F/q")
    for _ in range(3):
        publish(api, "q")
    answer = api.ask("DELETE", "queues/%2F/q/contents")
    assert (answer.status, answer.json) == (200, {"messages_deleted": 3})
    assert api.get("queues/%2F/q")["messages"] == 0


def test_actions_are_accepted_and_do_nothing(api: Api) -> None:
    api.put("queues/%2F/q")
    assert api.post("queues/%2F/q/actions", {"action": "sync"}).status == 204
    assert api.post("queues/%2F/q/actions", {"action": "dance"}).status == 400


def test_lists_can_be_sorted_filtered_paged_and_cut(api: Api) -> None:
    for name, count in (("one", 1), ("three", 3), ("two", 2)):
        api.put(f"queues/%2F/{name}")
        for _ in range(count):
            publish(api, name)
    columns = api.get("queues?columns=name,message_stats.publish")
    assert columns == [
        {"name": "one", "message_stats": {"publish": 1}},
        {"name": "three", "message_stats": {"publish": 3}},
        {"name": "two", "message_stats": {"publish": 2}},
    ]
    by_count = api.get("queues?sort=message_stats.publish&sort_reverse=true&columns=name")
    assert [q["name"] for q in by_count] == ["three", "two", "one"]
    assert [q["name"] for q in api.get("queues?name=O")] == ["one", "two"]
    assert [q["name"] for q in api.get("queues?name=^t.*e$&use_regex=true")] == ["three"]
    page = api.get("queues?page=2&page_size=2&columns=name&sort=name")
    assert page == {
        "filtered_count": 3,
        "item_count": 1,
        "items": [{"name": "two"}],
        "page": 2,
        "page_count": 2,
        "page_size": 2,
        "total_count": 3,
    }
    filtered = api.get("queues?pagination=true&name=tw")
    assert (filtered["total_count"], filtered["filtered_count"]) == (3, 1)


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=x",
        "page=9",
        "page=1&page_size=501",
        "page=1&page_size=0",
        "name=((&use_regex=true",
        "use_regex=perhaps",
    ],
)
def test_invalid_list_query_is_refused(api: Api, query: str) -> None:
    assert api.ask("GET", f"queues?{query}").status == 400


def test_regex_that_would_explode_elsewhere_does_no_harm(api: Api) -> None:
    api.put(f"queues/%2F/{'a' * 200}")
    assert api.get("queues?name=^(a%2B)%2B%24b&use_regex=true") == []


def test_list_without_statistics(api: Api) -> None:
    api.put("queues/%2F/q")
    publish(api, "q")
    (plain,) = api.get("queues?disable_stats=true")
    assert "messages" not in plain and "message_stats" not in plain
    (totals,) = api.get("queues/%2F?disable_stats=true&enable_queue_totals=true")
    assert (totals["name"], totals["messages"], totals["messages_ready"]) == ("q", 1, 1)


def test_overview_counts_what_happened(api: Api, server: RunningBroker) -> None:
    before = api.get("overview")
    api.put("queues/%2F/q")
    publish(api, "q")
    get(api, "q", "ack_requeue_false")
    with connected(server) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"x")
        channel.basic_publish("", "nobody", b"x")
        channel.basic_get("q", auto_ack=True)
        channel.basic_get("q")
    api.delete("queues/%2F/q")
    after = api.get("overview")

    def grew(group: str, name: str) -> int:
        return int(after[group][name] - before[group][name])

    stats = {
        name: grew("message_stats", name) for name in after["message_stats"] if "_d" not in name
    }
    assert stats == {
        "publish": 3,
        "confirm": 2,
        "return_unroutable": 0,
        "drop_unroutable": 1,
        "deliver": 0,
        "deliver_no_ack": 0,
        "get": 1,
        "get_no_ack": 1,
        "get_empty": 2,
        "ack": 1,
        "redeliver": 0,
        "deliver_get": 2,
    }
    churn = {
        name: grew("churn_rates", name)
        for name in after["churn_rates"]
        if not name.endswith("_details")
    }
    assert churn["connection_created"] == churn["connection_closed"] == 1
    assert churn["channel_created"] == churn["channel_closed"] == 1
    assert churn["queue_created"] == churn["queue_deleted"] == 1


def test_node_is_described(api: Api) -> None:
    (node,) = api.get("nodes")
    assert api.get("nodes/test")["name"] == node["name"] == "test"
    assert node["mem_used"] > 0 and node["fd_used"] > 0 and node["uptime"] >= 0
    assert api.get("nodes/test?memory=true")["memory"]["total"]["rss"] > 0
    assert api.get("nodes/test/memory")["memory"]["strategy"] == "rss"
    assert api.get("nodes/test/memory/relative")["memory"]["total"] == 100
    assert api.ask("GET", "nodes/other").status == 404


def test_settings_are_shown_without_secrets(api: Api) -> None:
    settings = api.get("config/effective")
    assert (settings["node"], settings["default_pass"]) == ("test", "***")
    assert "None" not in settings.values()  # unset options are null


def test_reads_of_definitions_are_not_audited(api: Api) -> None:
    before = api.get("audit?limit=1000")
    assert api.get("queues") is not None
    assert api.post("exchanges/%2F/amq.direct/route", {"routing_key": "k"}).status == 200
    assert api.get("audit?limit=1000") == before


def test_cluster_can_be_named(api: Api) -> None:
    assert api.get("cluster-name") == {"name": "test"}
    assert api.put("cluster-name", {"name": "warren"}) == 204
    assert api.get("cluster-name") == {"name": "warren"}
    assert api.get("overview?columns=cluster_name") == {"cluster_name": "warren"}
    api.put("cluster-name", {"name": "test"})


HEALTHY = [
    "alarms",
    "local-alarms",
    "metadata-store/initialized",
    "metadata-store/initialized/with-data",
    "certificate-expiration/1/months",
    "protocol-listener/amqp091",
    "protocol-listener/mqtt,amqp",
    "virtual-hosts",
    "quorum-queues-without-elected-leaders/all-vhosts",
    "quorum-queues-without-elected-leaders/all-vhosts/pattern/.*",
    "quorum-queues-without-elected-leaders/vhost/%2F",
    "quorum-queues-without-elected-leaders/vhost/%2F/pattern/.*",
    "node-is-quorum-critical",
    "node-is-mirror-sync-critical",
    "is-in-service",
    "below-node-connection-limit",
    "ready-to-serve-clients",
    "reached-target-cluster-size",
]


@pytest.mark.parametrize("check", HEALTHY)
def test_health_check_is_well(api: Api, check: str) -> None:
    assert api.get(f"health/checks/{check}")["status"] == "ok"


def test_health_checks_fail_with_a_reason(api: Api, server: RunningBroker) -> None:
    assert api.get(f"health/checks/port-listener/{server.port}") == {
        "status": "ok",
        "port": server.port,
    }
    missing = api.ask("GET", "health/checks/port-listener/1")
    assert missing.status == 503
    assert missing.json["missing"] == 1 and server.port in missing.json["ports"]
    protocol = api.ask("GET", "health/checks/protocol-listener/mqtt")
    assert (protocol.status, protocol.json["reason"]) == (503, "No active listener")
    assert api.ask("GET", "health/checks/certificate-expiration/1/parsecs").status == 400
    assert api.ask("GET", "health/checks/port-listener/abc").status == 400


def test_alarm_fails_its_health_checks_and_blocks_publishing(
    api: Api, server: RunningBroker
) -> None:
    api.put("queues/%2F/q")
    server.node.front.alarms.append("memory")
    try:
        for path in ("health/checks/alarms", "healthchecks/node", "healthchecks/node/test"):
            answer = api.ask("GET", path)
            assert (answer.status, answer.json["reason"]) == (503, "low on memory")
            assert answer.json["alarms"] == [{"node": "test", "resource": "memory"}]
        jobs = api.ask("GET", "health/checks/jobs")
        assert (jobs.status, jobs.json["reason"]) == (503, "low on memory")
        assert api.get("nodes/test")["mem_alarm"] is True
        shown: list[str] = []
        client = ManagementClient(server.http_url, None, None)
        assert show_status(client, as_json=False, echo=shown.append) == 1
        assert shown[1] == "health   low on memory"
        assert shown[2].startswith("advice   publishers wait; find the queues that grow")
        body = {"routing_key": "q", "payload": "x"}
        assert api.post("exchanges/%2F/amq.default/publish", body).status == 503
    finally:
        server.node.front.alarms.remove("memory")
    assert api.get("aliveness-test/%2F") == {"status": "ok"}


def test_work_that_fails_in_the_background_is_shown_and_the_node_is_still_well(
    api: Api, server: RunningBroker
) -> None:
    class Part:
        fault = "the keys could not be loaded"

    part = Part()
    anybody, user = (ManagementClient(server.http_url, name, None) for name in (None, "guest"))
    assert api.get("health/checks/background") == {"status": "ok"}
    assert "background" not in api.get("health")
    server.node.background.watch(part)
    try:
        answer = api.ask("GET", "health/checks/background")
        assert (answer.status, answer.json["reason"]) == (503, part.fault)
        assert (api.get("health")["status"], api.get("health")["background"]) == ("ok", "failed")
        shown: list[str] = []
        assert show_status(user, as_json=False, echo=shown.append) == 0
        assert f"faults   {part.fault}" in shown
        assert show_status(anybody, as_json=False, echo=shown.append) == 0
        assert shown[-3].startswith("faults   work in the background fails: give --user")
    finally:
        part.fault = ""
    assert api.get("health/checks/background") == {"status": "ok"}


def test_slow_disk_fails_its_own_check_only_and_is_shown(
    api: Api, server: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    anybody, user = (ManagementClient(server.http_url, name, None) for name in (None, "guest"))
    assert api.get("health/checks/disk-speed") == {"status": "ok"}
    assert show_status(user, as_json=False, echo=shown.append) == 0
    assert not [line for line in shown if line.startswith("disk")]
    monkeypatch.setattr(server.node.view, "slow_sync_s", lambda: 0.3456)
    answer = api.ask("GET", "health/checks/disk-speed")
    data = str(server.node.settings.data)
    said = f"the disk of node test is slow: a sync of {data} takes 346 ms"
    assert (answer.status, answer.json["reason"]) == (503, said)
    assert answer.json["disks"] == [{"node": "test", "data": data, "sync_ms": 346}]
    assert api.put("users/few", {"password": "few", "tags": "management"}) == 201
    answer = api.as_user("few").ask("GET", "health/checks/disk-speed")
    assert answer.json["reason"] == "the disk of node test is slow: a sync takes 346 ms"
    assert answer.json["disks"] == [{"node": "test", "data": "", "sync_ms": 346}]
    few: list[str] = []
    client = ManagementClient(server.http_url, "few", "few")
    assert show_status(client, as_json=False, echo=few.append) == 0
    assert "disk     the disk of node test is slow: a sync takes 346 ms" in few
    assert api.delete("users/few") == 204
    assert api.get("health")["disk"] == "slow: a sync takes 346 ms"
    assert api.get("health/checks/alarms") == {"status": "ok"}
    assert show_status(user, as_json=False, echo=shown.append) == 0
    assert f"disk     {said}" in shown
    assert show_status(anybody, as_json=False, echo=shown.append) == 0
    assert "disk     slow: a sync takes 346 ms" in shown
    assert sum(line.startswith("advice   look for other programs") for line in shown) == 2


def test_answers_that_depend_on_a_cluster(api: Api) -> None:
    api.put("queues/%2F/qq", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    queue = api.get("queues/%2F/qq")
    assert (queue["leader"], queue["members"], queue["online"]) == ("test", ["test"], ["test"])
    (member,) = api.get("queues/quorum/%2F/qq/status")
    assert (member["Node Name"], member["Raft State"]) == ("test", "leader")
    assert api.post("queues/quorum/%2F/qq/replicas/add", {"node": "other"}).status == 400
    assert api.ask("DELETE", "queues/quorum/%2F/qq/replicas/delete", {"node": "test"}).status == 400
    assert api.post("queues/quorum/replicas/on/test/grow").status == 204
    assert api.delete("queues/quorum/replicas/on/test/shrink") == 204
    assert api.post("rebalance/queues").status == 204
    assert api.delete("reset") == 204
    assert all(flag["state"] == "enabled" for flag in api.get("feature-flags"))
    assert api.put("feature-flags/quorum_queue/enable") == 204
    assert api.put("feature-flags/nonesuch/enable") == 404
    assert api.get("extensions") == []


def test_transient_queues_are_a_deprecated_feature_that_is_used(api: Api) -> None:
    assert api.get("deprecated-features/used") == []
    api.put("queues/%2F/q")
    (used,) = api.get("deprecated-features/used")
    assert used["name"] == "transient_nonexcl_queues"
    assert used in api.get("deprecated-features")


def test_form_login_checks_credentials(api: Api) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    good = api.ask("POST", "login", b"username=guest&password=guest", form)
    assert (good.status, good.json) == (200, "ok")
    assert api.ask("POST", "login", b"username=guest&password=wrong", form).status == 401
    assert api.ask("DELETE", "login").status == 200
