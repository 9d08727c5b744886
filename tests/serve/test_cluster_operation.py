"""Operators look at a cluster of processes, drain nodes, let new ones in, and rescue a copy."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import wait_until

pytestmark = pytest.mark.compiled_only(
    "the simulation of the cluster runs in both forms, and processes take long to start"
)


@pytest.fixture(scope="module")
def trio() -> Iterator[RunningCluster]:
    with cluster(3) as found:
        yield found


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leveret", "ctl", "cluster", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


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
