"""Operators look at a cluster of processes, drain nodes, let new ones in, and rescue a copy."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import ClusterProcess, wait_until
from leveret.testing.ports import free_port
from tests.serve.test_cluster import drain, publish

pytestmark = pytest.mark.compiled_only(
    "the simulation of the cluster runs in both forms, and processes take long to start"
)


@pytest.fixture(scope="module")
def trio() -> Iterator[RunningCluster]:
    with cluster(3) as found:
        yield found


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process: a process of its own takes half a second of CPU to start."""
    command = ["ctl", "cluster", *words]
    done = CliRunner().invoke(make_app("ctl"), command, catch_exceptions=False)
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def at(trio: RunningCluster, asked: str, *words: str) -> subprocess.CompletedProcess[str]:
    return ctl(*words, "--url", trio.http_url(asked))


def test_a_drained_leader_hands_over_and_is_revived(trio: RunningCluster) -> None:
    first = trio.leader
    done = at(trio, first, "drain", first)
    assert done.returncode == 0, done.stderr
    assert f"node {first} is drained" in done.stdout
    new = trio.leader
    assert new != first
    refused = at(trio, first, "lead", first)
    assert refused.returncode == 1
    assert f"node {first} is drained" in refused.stderr
    shown = at(trio, first, "status")
    assert shown.returncode == 0, shown.stdout
    assert "follower, drained" in shown.stdout
    assert f"leveret ctl cluster revive {first}" in shown.stdout
    done = at(trio, new, "revive", first)
    assert done.stdout == f"node {first} may lead again\n"


def test_status_says_who_is_lost_and_what_to_do(trio: RunningCluster) -> None:
    lost, asked = trio.followers
    trio.kill(lost)
    wait_until(lambda: at(trio, asked, "status").returncode == 3, "the loss is seen")
    shown = at(trio, asked, "status").stdout
    assert "losing one more node stops the cluster" in shown
    assert f"degraded: node {lost} is not reached: start it" in shown
    leader = trio.leader
    trio.kill(leader)
    wait_until(lambda: at(trio, asked, "status").returncode == 4, "no majority is seen")
    found = json.loads(at(trio, asked, "status", "--json").stdout)
    assert found["state"] == "stopped"
    assert found["voters_spare"] == -1
    trio.start(lost, leader)
    trio.wait_for_members()
    wait_until(lambda: at(trio, asked, "status").returncode == 0, "the cluster is healthy")


def test_a_copy_is_rescued_when_the_majority_is_lost_for_good() -> None:
    with cluster(3) as trio:
        bodies = [f"message {number}" for number in range(20)]
        publish(trio.url("b"), "kept", bodies)
        trio.wait_for_members()
        left = trio.followers[0]
        refused = ctl("rescue", "--data", str(trio[left].data), "--yes")
        assert refused.returncode == 1
        assert "is in use" in refused.stderr
        trio.kill(*trio.nodes)
        asked = ctl("rescue", "--data", str(trio[left].data))  # without a terminal
        assert asked.returncode == 1
        assert "nothing was changed: run it again with --yes" in asked.stderr
        old = [name for name in trio.nodes if name != left]
        assert "are taken out of the cluster" in asked.stdout
        assert f"with their old directories: {', '.join(old)}" in asked.stdout
        done = ctl("rescue", "--data", str(trio[left].data), "--yes")
        assert done.returncode == 0, done.stderr
        assert f"node {left} is the cluster" in done.stdout
        trio.start(left)
        assert trio[left].facts() is not None
        comes_back, wiped = old
        trio.wipe(wiped)
        trio.start(wiped)
        trio.start(comes_back, wait=False)  # with its old directory
        wait_until(lambda: "belongs to cluster" in trio[comes_back].log, "the node is refused")
        trio.kill(comes_back)
        trio.wipe(comes_back)
        trio.start(comes_back)
        trio.wait_for_members()
        assert drain(trio.url(comes_back), "kept") == bodies


def test_a_fourth_node_joins_by_its_options(trio: RunningCluster, tmp_path: Path) -> None:
    with_secret = trio["a"].flags[-2:]
    peers = trio["a"].flags[trio["a"].flags.index("--cluster-peers") + 1]
    listen = f"127.0.0.1:{free_port()}"
    flags = ["--cluster-listen", listen, "--cluster-peers", f"{peers},d={listen}", *with_secret]
    late = ClusterProcess("d", tmp_path, flags, trio["a"].env)
    late.spawn()
    try:
        late.wait_ready()
        url = late.http_url
        wait_until(lambda: ctl("status", "--url", url).returncode == 0, "node d follows")
        wait_until(lambda: "non-voter" not in ctl("status", "--url", url).stdout, "node d votes")
        removed = ctl("remove", "d", "--url", trio.http_url("b"))
        assert removed.returncode == 0, removed.stderr
        assert late.wait_ended() != 0
        assert "node d was removed from the cluster" in late.log
    finally:
        if late.process is not None:
            late.process.kill()
            late.wait_ended()
