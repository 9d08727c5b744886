"""Disks of a real cluster that need 300 ms for a sync: each place where an operator looks says so.

A library that is loaded before libc delays `fdatasync` (LD_PRELOAD).
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pika
import pytest
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.cli.ctl.cluster_status import EXIT_CODES
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import POLL_S, WITHIN_S, wait_until
from tests.serve.test_cluster_view import ask, get

pytestmark = pytest.mark.compiled_only("processes take long to start")

SYNC_MS = 300
# The delay in milliseconds is in a file beside the data directory. Without it there is no delay.
DELAY = r"""
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    char link[64], path[PATH_MAX + 16];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX);
    if (size > 0) {
        path[size] = 0;
        char *end = strrchr(path, '/');
        if (end != NULL) {
            strcpy(end, ".sync_ms");
            FILE *file = fopen(path, "r");
            int delay_ms = 0;
            if (file != NULL) {
                if (fscanf(file, "%d", &delay_ms) == 1) usleep(delay_ms * 1000);
                fclose(file);
            }
        }
    }
    return syscall(SYS_fdatasync, fd);
}
"""


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    source, library = tmp_path / "delay.c", tmp_path / "delay.so"
    source.write_text(DELAY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    with cluster(3) as running:
        monkeypatch.delenv("LD_PRELOAD")
        yield running


def ctl(trio: RunningCluster, asked: str, *words: str) -> tuple[int, str]:
    address = f"http://guest:guest@{trio.http_url(asked).removeprefix('http://')}"
    command = ["ctl", *words, "--url", address]
    done = CliRunner().invoke(make_app("ctl"), command, catch_exceptions=False)
    return done.exit_code, done.stdout


def slow_nodes(trio: RunningCluster, asked: str) -> list[str]:
    """Return the nodes whose disks are slow, as a node says."""
    body = msgspec.json.decode(ask(trio, asked, "/api/health/checks/disk-speed")[1])
    return [row["node"] for row in body.get("disks", [])]


def publish_until(trio: RunningCluster, slow: set[str]) -> None:
    """Publish, so that all disks sync, until all nodes say that the disks of these are slow."""
    url = pika.URLParameters(trio[trio.leader].url)
    with closing(pika.BlockingConnection(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        end_s = time.monotonic() + WITHIN_S
        while any(set(slow_nodes(trio, name)) != slow for name in trio.nodes):
            assert time.monotonic() < end_s, [slow_nodes(trio, name) for name in trio.nodes]
            for _ in range(3):
                channel.basic_publish("", "q", b"m", pika.BasicProperties(delivery_mode=2))
            connection.sleep(POLL_S)


def delay_syncs(trio: RunningCluster, name: str, delay_ms: int) -> None:
    trio[name].data.with_suffix(".sync_ms").write_text(str(delay_ms))


def test_slow_disks_are_told_by_each_node_and_another_node_may_lead(trio: RunningCluster) -> None:
    leader = trio.leader
    slow, fast = trio.followers
    for name in (leader, slow):
        delay_syncs(trio, name, SYNC_MS)
    publish_until(trio, {leader, slow})

    for asked in trio.nodes:
        code, shown = ctl(trio, asked, "status")
        assert code == 0
        for name in (leader, slow):
            assert f"the disk of node {name} is slow: a sync of {trio[name].data} takes " in shown
        code, shown = ctl(trio, asked, "cluster", "status")
        assert code == EXIT_CODES["degraded"]
        rows = [line for line in shown.splitlines() if "is slow: a sync of" in line]
        assert len(rows) == 2
        assert f"`leveret ctl cluster lead {fast}`" in next(r for r in rows if "it leads" in r)
        health = get(trio, asked, "/api/health")
        assert health.get("disk", "").startswith("slow: a sync takes") == (asked != fast)
        metrics = ask(trio, asked, "/metrics")[1].decode()
        assert ("\nleveret_slow_sync_seconds 0\n" in metrics) == (asked == fast)
        assert "\nleveret_journal_sync_seconds_count " in metrics
    assert f"The disk of node {slow} is slow" in str(get(trio, slow, "/api/queues/%2F/q/explain"))
    text = f"the disk of node {slow} is slow"
    wait_until(lambda: text in trio[leader].log, "the leader logs the slow disk of a follower")

    assert ctl(trio, slow, "cluster", "lead", fast)[0] == 0
    assert trio.leader == fast
    for name in (leader, slow):
        delay_syncs(trio, name, 0)
    publish_until(trio, set())
    for name in trio.nodes:
        own = [line for line in trio[name].log.splitlines() if "sync_watch" in line]
        told_s = [("the disk is slow" in line, str(trio[name].data) in line) for line in own]
        assert told_s == [(True, True), (False, True)] * (len(told_s) // 2)
        assert told_s or name == fast  # other programs may have made its disk slow for a while
