"""Three processes of `leveret serve` as one broker: relays, kills and hand-overs lose nothing."""

import subprocess
import sys
from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import AMQPError

from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import wait_until

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
    done = subprocess.run(
        [sys.executable, "-m", "leveret", "ctl", *words, "--url", trio.http_url(asked)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
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
    publish(trio.url(target), "handed", ["one"])
    assert target in ctl(trio, trio.nodes[-1], "cluster", "lead", target)
    wait_until(lambda: trio.leader == target, f"node {target} leads")
    publish(trio.url(trio.followers[0]), "handed", ["two"])
    assert drain(trio.url(target), "handed") == ["one", "two"]
