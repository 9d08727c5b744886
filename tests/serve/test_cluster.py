"""Three processes of `leveret serve` as one broker: relays, kills and hand-overs lose nothing."""

import contextlib
import http.client
import json
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError, ConnectionClosedByBroker
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.cluster.handshake import NONCE_BYTES, TALK, Card, Dialing
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import WITHIN_S, wait_until
from leveret.testing.ports import HOST
from pyspark_leveret.options import parse_options
from pyspark_leveret.ranges import Range
from pyspark_leveret.reading import read_range
from tests.tls.certificates import Pair, TestAuthority

pytestmark = pytest.mark.compiled_only(
    "the simulation of the cluster runs in both forms, and processes take long to start"
)

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningCluster]:
    with cluster(3) as found:
        yield found


@pytest.fixture
def trio(shared: RunningCluster) -> Iterator[RunningCluster]:
    """Three nodes that run and have caught up, before and after each test."""
    shared.wait_for_members()
    yield shared
    shared.heal()
    for name in shared.nodes:
        if name not in shared.running:
            shared.start(name)
    shared.wait_for_members()


def connect(url: str) -> pika.BlockingConnection:
    """Connect to a node, which may be without a leader for a moment."""
    found: list[pika.BlockingConnection] = []

    def is_connected() -> bool:
        try:
            found.append(pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=0")))
        except (AMQPError, OSError):
            return False
        return True

    wait_until(is_connected, f"connected with {url}")
    return found[0]


def publish(url: str, queue: str, bodies: list[str]) -> None:
    """Publish with confirms; return when all are confirmed."""
    connection = connect(url)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body.encode(), PERSISTENT)
    connection.close()


def drain(url: str, queue: str) -> list[str]:
    """Return the bodies of all messages of a queue, and delete it."""
    connection = connect(url)
    channel = connection.channel()
    bodies: list[str] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            break
        bodies.append(body.decode())
    channel.queue_delete(queue)
    connection.close()
    return bodies


def ctl(trio: RunningCluster, asked: str, *words: str) -> str:
    """Run a command in this process: a process of its own takes half a second of CPU to start."""
    command = ["ctl", *words, "--url", trio.http_url(asked)]
    done = CliRunner().invoke(make_app("ctl"), command, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_every_node_serves_clients(trio: RunningCluster) -> None:
    bodies = [f"{name} {number}" for name in trio.nodes for number in range(20)]
    for name in trio.nodes:
        publish(trio.url(name), "anywhere", [body for body in bodies if body[0] == name])
    for name in trio.nodes:
        assert name in ctl(trio, name, "cluster", "status")
    assert drain(trio.url(trio.followers[0]), "anywhere") == bodies


def test_killed_leader_loses_nothing_confirmed(trio: RunningCluster) -> None:
    leader = trio.leader
    before = [f"before {number}" for number in range(50)]
    publish(trio.url(leader), "killed", before)
    trio.kill(leader)
    new = trio.leader
    assert new != leader
    after = [f"after {number}" for number in range(50)]
    for name in trio.running:
        publish(trio.url(name), "killed", [f"{name} {body}" for body in after])
    trio.start(leader)
    expected = before + [
        f"{name} {body}" for name in trio.nodes if name != leader for body in after
    ]
    assert drain(trio.url(leader), "killed") == expected


def test_operator_lets_another_node_lead(trio: RunningCluster) -> None:
    target = trio.followers[0]
    name = get(trio, target, "/api/cluster-name")
    publish(trio.url(target), "handed", ["one"])
    assert target in ctl(trio, trio.nodes[-1], "cluster", "lead", target)
    wait_until(lambda: trio.leader == target, f"node {target} leads")
    publish(trio.url(trio.followers[0]), "handed", ["two"])
    assert drain(trio.url(target), "handed") == ["one", "two"]
    assert get(trio, target, "/api/cluster-name") == name


def get(trio: RunningCluster, name: str, path: str) -> tuple[int, Any]:
    """Return status and answer of a request at a node."""
    connection = http.client.HTTPConnection(HOST, trio[name].http_port, timeout=WITHIN_S)
    try:
        connection.request("GET", path, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_minority_confirms_nothing_closes_clients_and_says_why(trio: RunningCluster) -> None:
    leader = trio.leader
    publish(trio.url(leader), "minority", ["safe"])
    connection = connect(trio.url(leader))
    channel = connection.channel()
    channel.confirm_delivery()
    trio.isolate(leader)
    with pytest.raises(ConnectionClosedByBroker) as closed:
        channel.basic_publish("", "minority", b"unsafe", PERSISTENT)
    assert closed.value.reply_code == 320
    for path in ("queues", "health/checks/alarms", "health/checks/ready-to-serve-clients"):
        status, answer = get(trio, leader, f"/api/{path}")
        assert status == 503
        assert answer["reason"].startswith("No node leads: ")
    publish(trio.url(trio.leader), "minority", ["by the majority"])
    trio.heal()
    trio.wait_for_members()
    assert drain(trio.url(leader), "minority") == ["safe", "by the majority"]


def test_frozen_leader_delivers_nothing_that_its_successor_has_delivered(
    trio: RunningCluster,
) -> None:
    """A client asked it meanwhile. It is cut off, so nobody tells it that another node leads."""
    old = trio.leader
    bodies = [str(number) for number in range(20)]
    publish(trio.url(old), "frozen", bodies)
    channel = connect(trio.url(old)).channel()
    taken: list[bytes | None] = []

    def take() -> None:
        with contextlib.suppress(AMQPError):
            while True:
                taken.append(channel.basic_get("frozen", auto_ack=True)[2])

    asking = threading.Thread(target=take)
    trio.pause(old)
    try:
        trio.isolate(old)
        asking.start()
        new = trio.leader
        assert new != old
        assert drain(trio.url(new), "frozen") == bodies
    finally:
        trio.resume(old)
    asking.join(WITHIN_S)
    assert not asking.is_alive(), "the old leader closes the connection"
    assert taken == []


def publish_stream(url: str, stream: str, bodies: list[bytes]) -> None:
    connection = connect(url)
    channel = connection.channel()
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", stream, body, PERSISTENT)
    connection.close()


def encodes(trio: RunningCluster, name: str) -> bool:
    """Return True if a node has a process that encodes rows for bulk reads."""
    process = trio[name].process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return any(b"leveret.arrow.worker" in command for command in commands)


def reads_itself(trio: RunningCluster, name: str, stream: str, end: int) -> bool:
    """Ask a node for the last row; return True if it answers itself, and not the leader."""
    options = parse_options({"url": trio.http_url(name), "stream": stream})
    list(read_range(options, Range(stream, end - 1, end), ["offset"]))
    return encodes(trio, name)


def test_range_of_a_stream_outlives_the_node_that_reads_it(trio: RunningCluster) -> None:
    bodies = [bytes([number]) * 256 * 1024 for number in range(160)]  # 40 MiB, in several batches
    follower, *others = trio.followers
    publish_stream(trio.url(follower), "ranges", bodies)
    trio.wait_for_members()
    wait_until(
        lambda: reads_itself(trio, follower, "ranges", len(bodies)),
        f"node {follower} knows that all is committed",
    )
    urls = [trio.http_url(name) for name in (follower, *others, trio.leader)]
    options = parse_options({"url": ",".join(urls), "stream": "ranges"})
    batches = read_range(options, Range("ranges", 0, len(bodies)), ["offset", "body"])
    read = [next(batches)]
    trio.kill(follower)
    read += batches
    assert [offset for batch in read for offset in batch["offset"].to_pylist()] == list(range(160))
    assert [body for batch in read for body in batch["body"].to_pylist()] == bodies


class Publisher(threading.Thread):
    """Publishes one message after the other at all nodes in turn, until it is told to stop."""

    def __init__(self, urls: list[str], queue: str) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._queue = queue
        self._number = 0
        self.stopping = threading.Event()
        self.confirmed: list[str] = []

    def run(self) -> None:
        at = 0
        while not self.stopping.is_set():
            at += 1
            try:
                self._use(self._urls[at % len(self._urls)])
            except (AMQPError, OSError):
                continue

    def _use(self, url: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=0"))
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.stopping.is_set():
            self._number += 1
            channel.basic_publish("", self._queue, str(self._number).encode(), PERSISTENT)
            self.confirmed.append(str(self._number))
            self.stopping.wait(0.005)
        connection.close()

    def wait_for_more(self) -> None:
        before = len(self.confirmed)
        wait_until(lambda: len(self.confirmed) > before, "more messages are confirmed")


def test_rolling_restart_under_load_loses_nothing(trio: RunningCluster) -> None:
    publish(trio.url("a"), "rolling", [])
    publisher = Publisher([trio.url(name) for name in trio.nodes], "rolling")
    publisher.start()
    try:
        for name in [*trio.followers, trio.leader]:  # the last one leads, and hands over
            publisher.wait_for_more()
            trio[name].signal(signal.SIGTERM)
            assert trio[name].wait_ended() == 0
            publisher.wait_for_more()
            trio.start(name)
            trio.wait_for_members()
        publisher.wait_for_more()
    finally:
        publisher.stopping.set()
        publisher.join(WITHIN_S)
    taken = drain(trio.url(trio.leader), "rolling")
    assert set(publisher.confirmed) <= set(taken)
    assert sorted(taken, key=int) == taken
    assert len(set(taken)) == len(taken)


def test_single_node_becomes_a_cluster_and_grows_to_three(tmp_path: Path) -> None:
    bodies = [f"alone {number}" for number in range(20)]
    with cluster(3, folder=tmp_path, start=False) as trio:
        flags, trio["a"].flags = trio["a"].flags, []
        trio.start("a")
        publish(trio.url("a"), "grown", bodies)
        trio.stop("a")
        trio["a"].flags = flags
        trio.start("a")  # a cluster of one
        publish(trio.url("a"), "grown", ["of one"])
        trio.start("b", "c")
        trio.wait_for_members()
        trio.kill("a")
        assert drain(trio.url(trio.leader), "grown") == [*bodies, "of one"]


def test_nodes_speak_tls_and_want_certificates(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "authority")
    pair = authority.server()
    settings: dict[str, Any] = {"tls_cert": pair.cert, "tls_key": pair.key}
    settings |= {"tls_ca": authority.ca, "cluster_tls": True}
    with cluster(2, folder=tmp_path, **settings) as duo:
        publish(duo.url(duo.followers[0]), "encrypted", ["one"])
        assert drain(duo.url(duo.leader), "encrypted") == ["one"]
        assert answers_hello(duo, authority, pair)
        assert not answers_hello(duo, authority, None)


def answers_hello(duo: RunningCluster, authority: TestAuthority, pair: Pair | None) -> bool:
    """Return True if node a answers a node that knows the secret and shows this certificate."""
    flags = duo["a"].flags
    host, _, port = flags[flags.index("--cluster-listen") + 1].rpartition(":")
    secret = Path(flags[flags.index("--cluster-secret-file") + 1]).read_bytes()
    context = ssl.create_default_context(cafile=str(authority.ca))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    card = Card("c", b"uid of c", f"{HOST}:1", 1, peers=("a", "b", "c"))
    with (
        socket.create_connection((host, int(port)), WITHIN_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as stranger,
    ):
        try:
            stranger.sendall(Dialing(card, secret, bytes(NONCE_BYTES), "a", TALK).begin())
            return stranger.recv(1) != b""
        except (ssl.SSLError, ConnectionError):
            return False
