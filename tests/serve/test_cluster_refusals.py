"""Nodes that do not belong to a cluster are refused: one sentence in the logs of both sides.

One cluster runs for all tests. Each test adds a process that must not be let in.
"""

import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.cluster.handshake import Card, Dialing
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import ClusterProcess, wait_until
from leveret.testing.ports import HOST, free_port
from tests.serve.test_cluster import ctl, drain, publish

pytestmark = pytest.mark.compiled_only(
    "the simulation of the cluster runs in both forms, and processes take long to start"
)

VERSION_AT = 9  # size:u32 HELLO:u8 magic:4


@pytest.fixture(scope="module")
def trio() -> Iterator[RunningCluster]:
    with cluster(3) as found:
        yield found
        publish(found.url("a"), "after", ["it still works"])
        found.wait_for_members()
        assert drain(found.url("b"), "after") == ["it still works"]


def listens(node: ClusterProcess) -> str:
    """Return the address at which a node listens for others."""
    return node.flags[node.flags.index("--cluster-listen") + 1]


def secret_of(trio: RunningCluster) -> str:
    flags = trio["a"].flags
    return flags[flags.index("--cluster-secret-file") + 1]


@contextmanager
def stranger(
    trio: RunningCluster, folder: Path, name: str = "d", *, secret: str = ""
) -> Iterator[ClusterProcess]:
    """Make a node that knows the nodes of the cluster; end it at the end of the block."""
    own = f"{HOST}:{free_port()}"
    peers = {other: listens(trio[other]) for other in trio.nodes}
    peers[name] = own
    flags = ["--cluster-listen", own, "--cluster-secret-file", secret or secret_of(trio)]
    flags += ["--cluster-peers", ",".join(f"{other}={peers[other]}" for other in peers)]
    node = ClusterProcess(name, folder, flags, trio["a"].env)
    try:
        yield node
    finally:
        if node.process is not None:
            node.signal(signal.SIGKILL)
            node.wait_ended()


def wait_for_sentence(trio: RunningCluster, refused: ClusterProcess, sentence: str) -> None:
    """Wait until the refused node and a node of the cluster have logged a sentence."""

    def is_said() -> bool:
        return sentence in refused.log and any(sentence in trio[name].log for name in trio.nodes)

    wait_until(is_said, f"both sides say {sentence!r}")


def test_wrong_secret_is_refused(trio: RunningCluster, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("another secret, long enough")
    secret.chmod(0o600)
    with stranger(trio, tmp_path, secret=str(secret)) as node:
        node.spawn()
        advice = "have different secrets: give all nodes of the cluster the same"
        wait_for_sentence(trio, node, advice)


def test_node_of_another_cluster_is_refused(trio: RunningCluster, tmp_path: Path) -> None:
    with stranger(trio, tmp_path) as node:
        together = node.flags
        node.flags = [*together[:-1], f"d={listens(node)}"]
        node.spawn()
        node.wait_ready()  # it has founded a cluster of one
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0
        node.flags = together
        node.spawn()
        wait_for_sentence(trio, node, "correct --cluster-peers, or to let a node join the other")


def test_node_with_data_of_its_own_is_refused_and_keeps_it(
    trio: RunningCluster, tmp_path: Path
) -> None:
    with stranger(trio, tmp_path) as node:
        together, node.flags = node.flags, []
        node.spawn()
        node.wait_ready()
        publish(node.url, "own", ["of the node alone"])
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0
        node.flags = together
        node.spawn()
        wait_for_sentence(trio, node, "node d has data of its own, so it cannot join the cluster")
        assert drain(node.url, "own") == ["of the node alone"]


def test_wiped_node_is_refused_under_its_old_name_until_it_is_removed(
    trio: RunningCluster,
) -> None:
    wiped = trio.followers[0]
    trio.kill(wiped)
    trio.wipe(wiped)
    trio.start(wiped, wait=False)
    wait_for_sentence(trio, trio[wiped], f"run `leveret ctl cluster remove {wiped}` to let it join")
    ctl(trio, trio.leader, "cluster", "remove", wiped)
    trio.wait_for_members()


def test_second_node_of_a_name_is_refused(trio: RunningCluster, tmp_path: Path) -> None:
    name = trio.followers[0]
    trio.stop(name)
    shutil.copytree(trio[name].data, tmp_path / name)
    trio.start(name)
    trio.wait_for_members()
    with stranger(trio, tmp_path, name) as twin:
        twin.spawn()
        wait_for_sentence(trio, twin, f"two nodes are called {name}, at ")
        assert "start it with another --node" in twin.log


def test_peer_that_speaks_garbage_is_cut_off_with_a_line(trio: RunningCluster) -> None:
    host, _, port = listens(trio["a"]).rpartition(":")
    for garbage in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\0\0\0\5garbage"):
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(garbage)
            while connection.recv(1000):
                pass  # a refusal, then the end
    wait_until(
        lambda: "it does not speak the protocol between nodes" in trio["a"].log,
        "the line about the garbage",
    )
    assert "nothing but nodes may connect to --cluster-listen" in trio["a"].log


def test_peer_of_an_older_release_reads_what_to_do(trio: RunningCluster) -> None:
    host, _, port = listens(trio["a"]).rpartition(":")
    card = Card("d", b"uid of d", f"{HOST}:1", 1, peers=("a", "b", "c", "d"))
    hello = bytearray(Dialing(card, b"any secret, long enough", bytes(32), "a", 1).begin())
    hello[VERSION_AT] = 0
    answer = b""
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(hello)
        while data := connection.recv(1000):
            answer += data
    assert b"install the same release of Leveret on both" in answer
    wait_until(
        lambda: "install the same release of Leveret on both" in trio["a"].log,
        "the line about the release",
    )
