"""Metrics: the format is Prometheus's, the names are RabbitMQ's, and values follow the messages."""

import asyncio
import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leveret.metrics.node import NODE_FAMILIES
from leveret.metrics.queue_lines import escaped
from leveret.metrics.queues import QUEUE_FAMILIES
from leveret.metrics.scrape import PIECE_BYTES
from leveret.metrics.sources import SLICE
from leveret.slices import LoopShare, Slices
from leveret.testing.broker import RunningBroker, broker
from leveret.testing.clock import ManualClock
from tests.http.management import Api

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
# The metrics that RabbitMQ's own dashboards use.
DRAWN = """
rabbitmq_build_info rabbitmq_identity_info rabbitmq_queues rabbitmq_connections rabbitmq_channels
rabbitmq_consumers rabbitmq_queue_messages rabbitmq_queue_messages_ready
rabbitmq_queue_messages_unacked rabbitmq_queue_messages_persistent rabbitmq_queue_messages_bytes
rabbitmq_queue_consumers rabbitmq_queue_consumer_utilisation
rabbitmq_queues_declared_total rabbitmq_queues_created_total rabbitmq_queues_deleted_total
rabbitmq_connections_opened_total rabbitmq_connections_closed_total
rabbitmq_channels_opened_total rabbitmq_channels_closed_total
rabbitmq_channel_messages_published_total rabbitmq_channel_messages_confirmed_total
rabbitmq_channel_messages_delivered_total rabbitmq_channel_messages_delivered_ack_total
rabbitmq_channel_messages_acked_total rabbitmq_channel_messages_redelivered_total
rabbitmq_channel_messages_unroutable_dropped_total
rabbitmq_channel_messages_unroutable_returned_total
rabbitmq_global_messages_received_total rabbitmq_global_messages_received_confirm_total
rabbitmq_global_messages_routed_total rabbitmq_global_messages_confirmed_total
rabbitmq_global_messages_delivered_total rabbitmq_global_messages_redelivered_total
rabbitmq_global_messages_delivered_consume_auto_ack_total
rabbitmq_global_messages_delivered_consume_manual_ack_total
rabbitmq_global_messages_delivered_get_auto_ack_total
rabbitmq_global_messages_delivered_get_manual_ack_total
rabbitmq_global_messages_acknowledged_total rabbitmq_global_messages_get_empty_total
rabbitmq_global_messages_unroutable_dropped_total
rabbitmq_global_messages_unroutable_returned_total
rabbitmq_global_messages_dead_lettered_rejected_total
rabbitmq_global_messages_dead_lettered_expired_total
rabbitmq_global_messages_dead_lettered_maxlen_total
rabbitmq_global_messages_dead_lettered_delivery_limit_total
rabbitmq_global_messages_dead_lettered_confirmed_total
rabbitmq_global_publishers rabbitmq_global_consumers
rabbitmq_resident_memory_limit_bytes rabbitmq_disk_space_available_bytes
rabbitmq_disk_space_available_limit_bytes rabbitmq_process_resident_memory_bytes
rabbitmq_process_open_fds rabbitmq_process_max_fds rabbitmq_erlang_uptime_seconds
rabbitmq_alarms_memory_used_watermark rabbitmq_alarms_free_disk_space_watermark
rabbitmq_alarms_file_descriptor_limit rabbitmq_message_size_bytes_bucket
rabbitmq_message_size_bytes_sum rabbitmq_message_size_bytes_count
""".split()

Samples = dict[str, list[tuple[dict[str, str], float]]]


def ask(
    server: RunningBroker, path: str, headers: dict[str, str] | None = None
) -> tuple[int, Any, str]:
    client = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    client.request("GET", path, headers=headers or {})
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    return answer.status, answer.headers, text


def scrape(server: RunningBroker, path: str = "/metrics") -> Samples:
    """Return all samples by name. The text must be complete, and each family in one place."""
    status, headers, text = ask(server, path)
    assert status == 200, text
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: Samples = {}
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
    for family in families:
        assert family.documentation
        assert family.type != "unknown", family.name
        for each in family.samples:
            found.setdefault(each.name, []).append((each.labels, each.value))
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    chosen = [v for found, v in samples[name] if labels.items() <= found.items()]
    assert len(chosen) == 1, (name, labels, samples[name])
    return chosen[0]


@contextmanager
def channel_of(server: RunningBroker) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    yield connection.channel()
    connection.close()


def test_all_metrics_of_dashboards_exist() -> None:
    with broker(http=True) as server:
        samples = scrape(server)
    assert [name for name in DRAWN if name not in samples] == []
    ((labels, one),) = samples["rabbitmq_identity_info"]
    assert one == 1
    assert labels == {
        "rabbitmq_node": "test",
        "rabbitmq_cluster": "test",
        "rabbitmq_cluster_permanent_id": "test",
        "rabbitmq_endpoint": "aggregated",
    }
    assert value(samples, "rabbitmq_build_info", rabbitmq_version="4.3.0") == 1


def test_values_follow_the_messages() -> None:
    with broker(http=True) as server, channel_of(server) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()
        for body in (b"a", b"bb" * 100, b"c"):
            channel.basic_publish("", "q", body)
        channel.basic_publish("", "nowhere", b"lost")
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("", "nowhere", b"back", mandatory=True)
        channel.basic_get("q", auto_ack=True)
        method, _, _ = channel.basic_get("q")
        before = scrape(server)
        channel.basic_ack(method.delivery_tag)
        channel.queue_declare("q", passive=True)
        after = scrape(server)
        channel.queue_delete("q")
        deleted = scrape(server)
    for name, now, then in (
        ("rabbitmq_queue_messages_ready", 1, 1),
        ("rabbitmq_queue_messages_unacked", 1, 0),
        ("rabbitmq_queue_messages", 2, 1),
        ("rabbitmq_global_messages_received_total", 5, 5),
        ("rabbitmq_global_messages_received_confirm_total", 5, 5),
        ("rabbitmq_global_messages_confirmed_total", 5, 5),
        ("rabbitmq_global_messages_routed_total", 3, 3),
        ("rabbitmq_global_messages_delivered_total", 2, 2),
        ("rabbitmq_global_messages_delivered_get_auto_ack_total", 1, 1),
        ("rabbitmq_global_messages_delivered_get_manual_ack_total", 1, 1),
        ("rabbitmq_global_messages_acknowledged_total", 0, 1),
        ("rabbitmq_global_messages_unroutable_dropped_total", 1, 1),
        ("rabbitmq_global_messages_unroutable_returned_total", 1, 1),
        ("rabbitmq_channel_messages_published_total", 5, 5),
        ("rabbitmq_connections", 1, 1),
        ("rabbitmq_channels", 1, 1),
        ("rabbitmq_global_publishers", 1, 1),
    ):
        assert (value(before, name), value(after, name)) == (now, then), name
    assert value(before, "rabbitmq_message_size_bytes_count") == 5
    assert value(before, "rabbitmq_message_size_bytes_bucket", le="1000") == 5
    assert value(before, "leveret_dropped_total", reason="unroutable") == 1
    assert value(after, "leveret_turns_total") > value(before, "leveret_turns_total")
    assert value(after, "leveret_http_requests_total", method="GET", status="200") == 1
    # Counts remain after the queue is deleted.
    for name in ("received", "routed", "delivered", "acknowledged"):
        counter = f"rabbitmq_global_messages_{name}_total"
        assert value(deleted, counter) == value(after, counter)
    assert value(deleted, "rabbitmq_queue_messages_ready") == 0
    assert value(deleted, "rabbitmq_queues_deleted_total") == 1


def test_ages_grow_with_the_clock() -> None:
    clock = ManualClock()
    with broker(http=True, clock=clock) as server, channel_of(server) as channel:
        channel.queue_declare("q")
        channel.queue_declare("empty")
        channel.basic_publish("", "q", b"old")
        channel.basic_publish("", "q", b"older")
        channel.basic_get("q")
        clock.advance(90)
        total = scrape(server)
        each = scrape(server, "/metrics/per-object")
    assert value(total, "leveret_oldest_ready_age_seconds") == 90
    assert value(total, "leveret_oldest_unacked_age_seconds") == 90
    name = "leveret_queue_oldest_ready_age_seconds"
    assert each[name] == [({"vhost": "/", "queue": "q"}, 90)]
    name = "leveret_queue_oldest_unacked_age_seconds"
    assert each[name] == [({"vhost": "/", "queue": "q"}, 90)]


def test_a_cursor_is_behind_by_messages_and_by_their_age() -> None:
    clock = ManualClock()
    with broker(http=True, clock=clock) as server, channel_of(server) as channel:
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        for body in (b"0", b"1", b"2"):
            channel.basic_publish("", "s", body)
            channel.queue_declare("s", passive=True)  # the broker has it
            clock.advance(30)
        api = Api(server)
        for name, offset in (("behind", 1), ("at the end", 3)):
            assert api.put(f"streams/%2F/s/cursors/{quote(name)}", {"offset": offset}) == 201
        each = scrape(server, "/metrics/per-object")
        total = scrape(server)
        one = scrape(server, "/metrics/detailed?family=leveret_stream_metrics&queue=none")
        assert api.put("streams/%2F/s/cursors/behind", {"offset": 3}) == 204
        later = scrape(server)
    assert "leveret_stream_cursor_lag_messages" not in one
    for suffix, behind in (("messages", 2), ("seconds", 60)):
        name = f"leveret_stream_cursor_lag_{suffix}"
        found = {labels["cursor"]: number for labels, number in each[name]}
        assert found == {"behind": behind, "at the end": 0}
        assert value(total, f"{name}_max") == behind
        assert value(later, f"{name}_max") == 0
    assert value(total, "leveret_stream_cursors") == 2


def test_each_object_has_its_lines() -> None:
    names = ["plain", 'quo"te', "back\\slash", "übung", "line\tbreak"]
    with broker(http=True) as server, channel_of(server) as channel:
        for count, name in enumerate(names):
            channel.queue_declare(name)
            for _ in range(count):
                channel.basic_publish("", name, b"x")
        channel.basic_get("plain")
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        arguments = {"x-max-length": 1, "x-dead-letter-exchange": ""}
        channel.queue_declare(
            "limited", arguments={**arguments, "x-dead-letter-routing-key": "nowhere"}
        )
        for _ in range(3):
            channel.basic_publish("", "limited", b"x")
        samples = scrape(server, "/metrics/per-object")
    ready = {labels["queue"]: n for labels, n in samples["rabbitmq_queue_messages_ready"]}
    expected = {name: float(count) for count, name in enumerate(names)}
    assert ready == {**expected, "s": 0, "limited": 1}
    assert value(samples, "rabbitmq_queue_info", queue="s", queue_type="rabbit_stream_queue") == 1
    lost = {"vhost": "/", "queue": "limited", "reason": "dead_letter_unroutable"}
    assert samples["leveret_queue_dropped_total"] == [(lost, 2)]
    (published,) = samples["rabbitmq_channel_messages_published_total"]
    assert published[0]["channel"].endswith(" (1)")
    assert published[1] == sum(range(len(names))) + 3
    assert value(samples, "rabbitmq_exchange_messages_published_total", exchange="") == published[1]
    assert value(samples, "rabbitmq_connection_channels", vhost="/", user="guest") == 1
    assert value(samples, "rabbitmq_connection_incoming_bytes_total", user="guest") > 100


def test_detailed_answers_the_requested_families() -> None:
    with broker(http=True) as server, channel_of(server) as channel:
        for name in ("orders.new", "orders.old", "bills"):
            channel.queue_declare(name)
        coarse = scrape(server, "/metrics/detailed?family=queue_coarse_metrics")
        some = scrape(server, "/metrics/detailed?family=queue_coarse_metrics&queue=orders.*")
        other = scrape(server, "/metrics/detailed?family=queue_coarse_metrics&vhost=other")
        rest = "family=queue_metrics&family=exchange_names&family=vhost_status&vhost=/"
        rest += "&family=connection_churn_metrics&family=leveret_queue_metrics"
        several = scrape(server, f"/metrics/detailed?{rest}")
        nothing = scrape(server, "/metrics/detailed")
    ready = "rabbitmq_detailed_queue_messages_ready"
    assert len(coarse[ready]) == 3
    assert [labels["queue"] for labels, _ in some[ready]] == ["orders.new", "orders.old"]
    assert ready not in other
    assert "rabbitmq_detailed_queue_messages_ram" not in coarse
    assert len(several["rabbitmq_detailed_queue_messages_ram"]) == 3
    assert value(several, "rabbitmq_cluster_vhost_status", vhost="/") == 1
    assert len(several["rabbitmq_cluster_exchange_name"]) >= 7
    assert value(several, "rabbitmq_detailed_queues_created_total") == 3
    assert {name for name in nothing if name.startswith("rabbitmq_detailed")} == set()


@pytest.mark.parametrize(("setting", "status"), [("remote", 200), ("never", 200), ("always", 401)])
def test_setting_decides_who_must_log_in(setting: str, status: int) -> None:
    with broker(http=True, metrics_login=setting) as server:
        for path in ("/metrics", "/metrics/per-object", "/metrics/detailed"):
            assert ask(server, path)[0] == status
            assert ask(server, path, LOGIN)[0] == 200


def test_loop_reports_its_delays() -> None:
    with broker(http=True) as server, channel_of(server) as channel:
        channel.queue_declare("q")
        status, _, text = ask(server, "/api/loop", LOGIN)
        assert ask(server, "/api/loop")[0] == 401
    assert status == 200
    facts = json.loads(text)
    assert facts["turns"] > 0
    assert set(facts) >= {"lag_ms_p50", "lag_ms_p99", "lag_ms_max", "sync_ms_p50", "log_bytes"}


class CountedSlices(Slices):
    """Count how often the scrape offers to rest."""

    count = 0

    async def rest_if_over(self) -> None:
        self.count += 1
        await super().rest_if_over()


def test_scrape_of_ten_thousand_queues_yields_the_loop() -> None:
    count = 10_000
    with broker(http=True) as server:
        node = server.node

        async def run() -> tuple[int, int, int]:
            with node.view.turn():
                vhost = node.broker.vhost("/")
                for number in range(count):
                    vhost.declare_queue(f"q{number}", durable=False, arguments={})
            looks = CountedSlices(LoopShare(lambda: node.broker.turn.now_ms))
            lines = longest = 0
            async for piece in node.view.metrics.scrape("per-object", looks):
                lines += piece.count(b"\n")
                longest = max(longest, len(piece))
            return lines, longest, looks.count

        lines, longest, looks = asyncio.run_coroutine_threadsafe(run(), node.turns._loop).result(60)
    dense = [f for f in QUEUE_FAMILIES if f.is_common and not f.is_sparse]
    assert lines >= count * (len(dense) - 1)
    # No slice has more than SLICE lines, and no piece is larger than a slice.
    assert looks >= lines // SLICE
    assert longest <= PIECE_BYTES + SLICE * 200


def test_names_are_unique_and_well_formed() -> None:
    families = [f.family for f in NODE_FAMILIES] + [f.family for f in QUEUE_FAMILIES]
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        assert family.name.startswith(("rabbitmq_", "leveret_"))
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert family.about.endswith(".")


def test_labels_are_escaped() -> None:
    assert escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
    assert escaped("ok-ü") == "ok-ü"
    assert escaped(b"\xff".decode("utf-8", "surrogateescape")) == "�"


def test_metrics_are_in_the_description_of_the_api() -> None:
    with broker(http=True) as server:
        status, _, text = ask(server, "/api/openapi.json")
    assert status == 200
    paths = json.loads(text)["paths"]
    assert {"/metrics", "/metrics/per-object", "/metrics/detailed", "/api/loop"} <= set(paths)
    asked = [each["name"] for each in paths["/metrics/detailed"]["get"]["parameters"]]
    assert asked == ["family", "vhost", "queue"]
