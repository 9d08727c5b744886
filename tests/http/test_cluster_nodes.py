"""Other nodes of a cluster in RabbitMQ's endpoints, from their reports to the leader."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from leveret.cli.ctl.status import show_status
from leveret.cli.shared.management import ManagementClient
from leveret.errors import LeadLostError
from leveret.http.framework.node import ClusterControl, ClusterNodeFacts, Machine, NodeReport
from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api

MACHINE = Machine(
    pid=4242,
    started_ms=0,
    memory_used_bytes=50_000_000,
    memory_held_bytes=0,
    memory_limit_bytes=100_000_000,
    disk_free_bytes=2_000,
    disk_limit_bytes=1_000,
    descriptors_used=40,
    descriptors_max=1024,
    processors=2,
    load=0.5,
    context_switches=900,
    data="/data/b",
)
REPORT = NodeReport(60_000, MACHINE, version="1.2.3", clients=7, age_ms=10_000)


class _Cluster:
    """A cluster of the test's broker, of node b that reports, and of node c that does not run."""

    def __init__(self) -> None:
        self.report: NodeReport | None = REPORT

    c_runs = False
    b_can_write = True

    def nodes(self) -> list[ClusterNodeFacts]:
        return [
            ClusterNodeFacts("b", False, True, True, 0, True, self.b_can_write),
            ClusterNodeFacts("c", False, True, self.c_runs, 0),
            ClusterNodeFacts("test", True, True, True, 0),
        ]

    def report_of(self, name: str) -> NodeReport | None:
        return self.report  # that of a node which does not run is not used

    def reasons(self) -> list[str]:
        return []

    state_now = "degraded"

    def state(self) -> str:
        return self.state_now

    def slow_sync_s(self) -> float:
        return 0.0

    def facts(self) -> dict[str, Any]:
        members = [{"name": name, "unreached_s": None} for name in ("b", "test")]
        fault = {"node": "c", "fault": "node c is not reached", "advice": "start it"}
        return {
            "name": "test",
            "cluster": "c0ffee",
            "raft": {"leader": "test"},
            "voters_spare": 0,
            "members": [*members, {"name": "c", "unreached_s": 9.0}],
            "faults": [{**fault, "severity": "degraded"}],
        }


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


@pytest.fixture
def cluster(server: RunningBroker) -> _Cluster:
    found = _Cluster()
    server.node.view.cluster = cast(ClusterControl, found)
    return found


@pytest.fixture
def api(server: RunningBroker) -> Api:
    return Api(server)


def test_node_that_reports_has_its_resources(api: Api, cluster: _Cluster) -> None:
    (other,) = [row for row in api.get("nodes") if row["name"] == "b"]
    assert (other["running"], other["being_drained"]) == (True, True)
    assert (other["mem_used"], other["fd_used"], other["os_pid"]) == (50_000_000, 40, "4242")
    assert (other["sockets_used"], other["proc_used"]) == (7, 7)
    assert other["applications"][0]["version"] == "1.2.3"
    for name in ("mem_used", "disk_free", "fd_used", "sockets_used", "proc_used"):
        assert other[f"{name}_details"] == {"rate": 0.0}
    assert api.get("nodes/b") == other
    assert api.get("nodes/b?memory=true")["memory"]["total"]["rss"] == 50_000_000
    assert api.get("nodes/b/memory")["memory"]["other_proc"] == 50_000_000
    assert api.get("nodes/b/memory/relative")["memory"]["total"] == 100


@pytest.mark.parametrize(
    ("c_runs", "b_can_write", "status"), [(True, True, 200), (False, True, 503), (True, False, 503)]
)
def test_a_node_is_critical_if_the_others_that_can_write_are_no_majority(
    api: Api, cluster: _Cluster, c_runs: bool, b_can_write: bool, status: int
) -> None:
    cluster.c_runs, cluster.b_can_write = c_runs, b_can_write
    assert api.ask("GET", "health/checks/node-is-quorum-critical").status == status


def test_a_dead_node_is_shown_and_this_one_is_still_well(
    api: Api, server: RunningBroker, cluster: _Cluster
) -> None:
    answer = api.ask("GET", "health")
    assert (answer.status, answer.json["status"], answer.json["cluster"]) == (200, "ok", "degraded")
    shown: list[str] = []
    administrator, anybody = (ManagementClient(server.http_url, user) for user in ("guest", None))
    assert show_status(administrator, as_json=False, echo=shown.append) == 0
    assert shown[2:4] == [
        "cluster  degraded: node test leads, node c does not answer, losing one more node stops"
        " the cluster",
        "advice   node c is not reached: start it",
    ]
    assert show_status(anybody, as_json=False, echo=shown.append) == 0
    assert "cluster  degraded: give --user and --password to see its nodes" in shown


def test_a_user_who_may_not_see_the_cluster_sees_its_state(
    api: Api, server: RunningBroker, cluster: _Cluster
) -> None:
    api.put("users/hare", {"password": "hare", "tags": "management"})
    shown: list[str] = []
    client = ManagementClient(server.http_url, "hare", "hare")
    assert show_status(client, as_json=False, echo=shown.append) == 0
    assert any(line.startswith("cluster  degraded: ") for line in shown)


def test_a_cluster_without_a_leader_is_shown_although_no_login_can_be_checked(
    server: RunningBroker, cluster: _Cluster
) -> None:
    cluster.state_now = "stopped"
    shown: list[str] = []
    client = ManagementClient(server.http_url, "guest", "a password that nobody can check")
    assert show_status(client, as_json=False, echo=shown.append) == 0
    assert any(line.startswith("cluster  stopped: ") for line in shown)


def test_a_node_in_no_cluster_says_nothing_of_one(api: Api, server: RunningBroker) -> None:
    server.node.view.cluster = None
    assert "cluster" not in api.get("health")
    shown: list[str] = []
    client = ManagementClient(server.http_url, "guest")
    assert show_status(client, as_json=False, echo=shown.append) == 0
    assert not [line for line in shown if line.startswith("cluster")]


def test_rates_are_those_between_two_reports(api: Api, cluster: _Cluster) -> None:
    machine = replace(MACHINE, pid=1)
    cluster.report = replace(REPORT, machine=machine, age_ms=10_000)
    api.get("nodes/b")
    later = replace(machine, memory_used_bytes=60_000_000, context_switches=1_900)
    cluster.report = replace(REPORT, machine=later, clients=2, age_ms=0)
    other = api.get("nodes/b")
    # The reports came about 10 s apart: this process may have been held up between the reads.
    assert 0 < other["mem_used_details"]["rate"] <= 1_000_000
    assert 0 < other["context_switches_details"]["rate"] <= 100
    assert -0.5 <= other["sockets_used_details"]["rate"] < 0


@pytest.mark.parametrize("report", [None, NodeReport(1, MACHINE)])
def test_unknown_resources_are_left_out(
    report: NodeReport | None, api: Api, cluster: _Cluster
) -> None:
    cluster.report = report
    other: dict[str, Any] = api.get("nodes/b?memory=true")
    assert "sockets_used" not in other
    assert "proc_used" not in other
    assert other["applications"] == []
    assert ("mem_used" in other) == ("memory" in other) == (report is not None)
    assert api.ask("GET", "nodes/b/memory").status == (404 if report is None else 200)


def test_node_that_does_not_run_has_no_resources(api: Api, cluster: _Cluster) -> None:
    other = api.get("nodes/c?memory=true")
    assert other["running"] is False
    assert not {"mem_used", "sockets_used", "memory"} & set(other)
    assert api.ask("GET", "nodes/c/memory").status == 404
    assert api.ask("GET", "nodes/d").status == 404


@pytest.mark.parametrize(
    "report",
    [
        replace(REPORT, disk_fault="No space left on device"),
        replace(REPORT, machine=replace(MACHINE, disk_free_bytes=999)),
    ],
)
def test_full_disk_of_another_node_is_an_alarm_of_the_cluster(
    report: NodeReport, api: Api, cluster: _Cluster
) -> None:
    assert api.get("health/checks/alarms") == {"status": "ok"}
    cluster.report = report
    assert api.get("nodes/b")["disk_free_alarm"] is True
    answer = api.ask("GET", "health/checks/alarms")
    assert answer.status == 503
    assert answer.json["alarms"] == [{"node": "b", "resource": "disk space"}]
    assert api.get("health/checks/local-alarms") == {"status": "ok"}


def test_command_that_lets_another_node_lead_is_answered(
    api: Api, server: RunningBroker, cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker of the old leader ends, perhaps with blocks that nobody has committed."""

    async def refuse() -> None:
        raise LeadLostError("another node leads now: try again")

    async def command(name: str, node: str) -> str:
        monkeypatch.setattr(server.node.view, "tellable", refuse)
        return f"node {node} takes the {name}"

    monkeypatch.setattr(cluster, "command", command, raising=False)
    answer = api.post("cluster/lead", {"node": "b"})
    assert (answer.status, answer.json) == (200, {"message": "node b takes the lead"})
