"""Three processes of `leveret serve` seen from outside: the same from every node."""

import http.client
import ssl
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pika
import pytest
from cryptography.x509.oid import NameOID
from pika.credentials import ExternalCredentials

from leveret.cli.ctl.status import show_status
from leveret.cli.shared.management import ManagementClient
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import wait_until
from leveret.testing.ports import HOST
from tests.tls.certificates import Pair, TestAuthority

pytestmark = pytest.mark.compiled_only("processes take long to start")

CRITICAL = "/api/health/checks/node-is-quorum-critical"
QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
LOGIN = b64encode(b"guest:guest").decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def trio(authority: TestAuthority) -> Iterator[RunningCluster]:
    server = authority.server()
    with cluster(
        3,
        amqps_port=0,
        tls_cert=server.cert,
        tls_key=server.key,
        tls_ca=authority.ca,
        tls_verify="optional",
        tls_login_from="common_name",
    ) as running:
        yield running


def ask(
    trio: RunningCluster,
    name: str,
    path: str,
    method: str = "GET",
    body: Any = None,
    token: str = "",
) -> tuple[int, bytes]:
    """Return status and body of an answer of a node."""
    connection = http.client.HTTPConnection(HOST, trio[name].http_port, timeout=60)
    login = f"Bearer {token}" if token else f"Basic {LOGIN}"
    data = None if body is None else msgspec.json.encode(body)
    headers = {"Authorization": login, "Content-Type": "application/json"}
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def get(trio: RunningCluster, name: str, path: str) -> Any:
    status, body = ask(trio, name, path)
    assert status == 200, body
    return msgspec.json.decode(body)


def is_critical(trio: RunningCluster, name: str) -> bool:
    return ask(trio, name, CRITICAL)[0] == 503


def nodes_with_resources(trio: RunningCluster, asked: str) -> list[dict[str, Any]]:
    """Return the nodes that run and have reported their resources."""
    return [row for row in get(trio, asked, "/api/nodes") if row["running"] and "mem_used" in row]


def connect_by_certificate(
    trio: RunningCluster, name: str, authority: TestAuthority, client: Pair
) -> pika.BlockingConnection:
    host, port = trio[name].addresses["amqps"].rsplit(":", 1)
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            host,
            int(port),
            ssl_options=pika.SSLOptions(authority.client_context(client), "localhost"),
            credentials=ExternalCredentials(),
        )
    )


def test_clients_log_in_by_certificate_at_every_node(
    trio: RunningCluster, authority: TestAuthority
) -> None:
    client = authority.pair([(NameOID.COMMON_NAME, "hare")])
    for path, body in (
        ("/api/users/hare", {"password": "a password", "tags": ""}),
        ("/api/permissions/%2F/hare", {"configure": ".*", "write": ".*", "read": ".*"}),
    ):
        assert ask(trio, trio.leader, path, "PUT", body)[0] == 201
    for name in trio.nodes:
        connection = connect_by_certificate(trio, name, authority, client)
        (row,) = [row for row in get(trio, name, "/api/connections") if row["user"] == "hare"]
        assert row["ssl"] is True
        assert row["peer_cert_subject"] == "CN=hare"
        assert row["auth_mechanism"] == "EXTERNAL"
        connection.close()
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError)):
        stranger = authority.pair([(NameOID.COMMON_NAME, "fox")])
        connect_by_certificate(trio, trio.followers[0], authority, stranger)


def test_token_of_jobs_is_valid_at_the_next_leader(trio: RunningCluster) -> None:
    old = trio.leader
    status, answer = ask(trio, old, "/api/jobs/token", "POST")
    assert status == 200, answer
    token = msgspec.json.decode(answer)["token"]
    new = trio.followers[0]
    assert ask(trio, old, "/api/cluster/lead", "POST", {"node": new})[0] == 200
    wait_until(lambda: trio.leader == new, f"node {new} leads")
    job = {"namespace": "/", "topic": "t", "payload": ""}

    def is_enqueued(name: str) -> bool:
        """Return False if the node still relayed to the old leader, which closes the connection."""
        try:
            status, answer = ask(trio, name, "/enqueue", "POST", [job], token)
        except ConnectionError:
            return False
        assert status in (200, 503), answer
        return status == 200

    for name in trio.nodes:
        wait_until(partial(is_enqueued, name), f"node {name} enqueues")


def test_every_node_shows_all_nodes(trio: RunningCluster) -> None:
    leader, (follower, killed) = trio.leader, trio.followers
    assert ask(trio, leader, "/api/queues/%2F/qq", "PUT", QUORUM)[0] in (201, 204)
    for name in trio.nodes:
        assert [row["name"] for row in get(trio, name, "/api/nodes")] == trio.nodes
        overview = get(trio, name, "/api/overview")
        assert overview["node"] == leader
        assert {one["protocol"] for one in overview["listeners"]} == {"amqp", "amqp/ssl", "http"}
        assert get(trio, name, CRITICAL)["status"] == "ok"
        port = trio[name].amqp_port
        assert get(trio, name, f"/api/health/checks/port-listener/{port}")["status"] == "ok"
        queue = get(trio, name, "/api/queues/%2F/qq")
        assert (queue["node"], queue["leader"]) == (leader, leader)
        assert queue["members"] == queue["online"] == trio.nodes
    trio.kill(killed)
    running = sorted([leader, follower])
    wait_until(lambda: get(trio, leader, "/api/queues/%2F/qq")["online"] == running, "it is gone")
    assert get(trio, follower, f"/api/nodes/{killed}")["running"] is False
    assert "mem_used" not in get(trio, follower, f"/api/nodes/{killed}")
    assert get(trio, follower, f"/api/nodes/{leader}")["running"] is True
    reasons = get(trio, follower, "/api/queues/%2F/qq/explain")["reasons"]
    texts = [reason["text"] for reason in reasons if reason["code"] == "cluster"]
    assert any(text.startswith(f"Node {killed} is not reached: start it, or ") for text in texts)

    def is_degraded(name: str) -> bool:
        health = get(trio, name, "/api/health")
        assert health["status"] == "ok"
        return bool(health["cluster"] == "degraded")

    for name in running:
        wait_until(partial(is_degraded, name), f"node {name} misses node {killed}")
        shown: list[str] = []
        client = ManagementClient(f"http://{HOST}:{trio[name].http_port}", "guest")
        assert show_status(client, as_json=False, echo=shown.append) == 0
        assert (
            f"cluster  degraded: node {leader} leads, node {killed} does not answer, losing one"
            " more node stops the cluster"
        ) in shown
        faults = get(trio, name, "/api/cluster")["faults"]
        # The node is not reached, and may be behind, too.
        assert {one["severity"] for one in faults if one["node"] == killed} == {"degraded"}
    replicas = get(trio, follower, "/api/queues/quorum/%2F/qq/status")
    states = {row["Node Name"]: row["Raft State"] for row in replicas}
    assert states == {leader: "leader", follower: "follower", killed: "noproc"}
    for name in running:
        wait_until(partial(is_critical, trio, name), f"node {name} is critical")
    trio.start(killed)
    trio.wait_for_members()


def test_every_node_shows_the_resources_of_all_nodes(trio: RunningCluster) -> None:
    for asked in trio.nodes:
        rows: list[dict[str, Any]] = []

        def all_have_reported(asked: str = asked, rows: list[dict[str, Any]] = rows) -> bool:
            rows[:] = nodes_with_resources(trio, asked)
            return len(rows) == 3

        wait_until(all_have_reported, "all nodes have reported their resources")
        assert len({row["os_pid"] for row in rows}) == 3
        assert len({row["db_dir"] for row in rows}) == 3
        for row in rows:
            assert 0 < row["mem_used"] < row["mem_limit"]
            assert 0 < row["fd_used"] < row["fd_total"]
            assert row["disk_free"] > row["disk_free_limit"] > 0
            assert row["uptime"] > 0
            assert row["processors"] > 0
            assert row["run_queue"] >= 0
            assert (row["mem_alarm"], row["disk_free_alarm"]) == (False, False)


def test_every_node_has_metrics_of_its_own(trio: RunningCluster) -> None:
    leader = trio.leader
    for name in trio.nodes:
        status, body = ask(trio, name, "/metrics")
        assert status == 200
        lines = body.decode().splitlines()
        role = "leader" if name == leader else "follower"
        assert f'leveret_raft_role{{role="{role}"}} 1' in lines
        assert f'leveret_raft_leader{{leader="{leader}"}} 1' in lines
        assert any(line.startswith("rabbitmq_process_resident_memory_bytes ") for line in lines)
        assert any(line.startswith("rabbitmq_raft_log_commit_index ") for line in lines)
        lags = [line for line in lines if line.startswith("leveret_raft_member_lag_blocks{")]
        assert len(lags) == (2 if name == leader else 0)
        has_queues = any(line.startswith("rabbitmq_queues ") for line in lines)
        assert has_queues == (name == leader)
    body = ask(trio, leader, "/metrics/detailed?family=ra_metrics")[1]
    assert b"\nrabbitmq_detailed_raft_term_total " in body


def test_minority_answers_503_with_the_reason(trio: RunningCluster) -> None:
    old = trio.leader
    others = trio.followers
    trio.kill(*others)
    wait_until(lambda: ask(trio, old, "/api/queues")[0] == 503, "the minority refuses")
    status, body = ask(trio, old, "/api/queues")
    assert status == 503
    assert "1 of 3 voters are reached, and 2 are needed" in msgspec.json.decode(body)["reason"]
    assert {one["node"] for one in get(trio, old, "/api/cluster")["faults"]} >= {"", *others}
    assert ask(trio, old, "/api/health/checks/alarms")[0] == 503
    shown: list[str] = []
    client = ManagementClient(f"http://{HOST}:{trio[old].http_port}", None, None)
    assert show_status(client, as_json=False, echo=shown.append) == 1
    assert not any("None" in line for line in shown)  # only a leader says its version
    trio.start(*others)
    trio.wait_for_members()
