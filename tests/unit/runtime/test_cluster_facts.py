"""Reports of other nodes: garbage counts as no report, and every node can make one."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from leveret.cluster.status import ClusterStatus, MemberStatus, RaftStatus
from leveret.config.settings import Settings
from leveret.runtime.cluster_facts import ClusterFacts


class Facts(ClusterFacts):
    """The facts of a node that has got one report."""

    def __init__(self, report: bytes, data: Path | None = None) -> None:
        settings = Settings(data=data) if data is not None else Settings()
        super().__init__(settings, cast(Any, None))
        reports = SimpleNamespace(newest=lambda name: report, age_s=lambda name: 0.0)
        self.member = cast(Any, SimpleNamespace(reports=reports))


def test_a_report_is_read_as_it_was_made(tmp_path: Path) -> None:
    made = Facts(b"", tmp_path).report()
    found = Facts(made).report_of("b")
    assert found is not None and found.machine.data == str(tmp_path)


def test_a_node_reports_a_directory_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"
    folder.mkdir()
    found = Facts(Facts(b"", folder).report()).report_of("b")
    assert found is not None and found.machine.data == f"{tmp_path}/?"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"data":"', b'"data":"\xff'),
        (b'"pid":', b'"pid":1e99'),
        (b'"load":', b'"load":"much",'),
        (b'"load":', b'"load":1e999,'),
        (b"{", b""),
        (b'{"uptime_ms":', b'{"other":' + b"[" * 3_000 + b"]" * 3_000 + b',"uptime_ms":'),
        (b'{"uptime_ms":', b'{"other":' + b'{"a":' * 3_000),
    ],
)
def test_a_report_that_cannot_be_read_is_none(tmp_path: Path, old: bytes, new: bytes) -> None:
    good = Facts(b"", tmp_path).report()
    bad = good.replace(old, new, 1)
    assert bad != good
    assert Facts(bad).report_of("b") is None


def test_a_full_disk_is_told_and_no_late_sync_besides(caplog: pytest.LogCaptureFixture) -> None:
    raft = RaftStatus("follower", "a", 1.0, 1, 0, 9, 9, 9, True, True, 0, "")
    status = ClusterStatus("b", 2, "c0ffee", "", {}, raft, 3, 3, 2, 1, [])
    facts = ClusterFacts(Settings(), cast(Any, SimpleNamespace(name="b", peers=[])))
    facts.member = cast(Any, SimpleNamespace(status=lambda: status))
    (late,) = facts.facts()["faults"]
    assert late["fault"].endswith("has not finished a sync for more than a second")
    facts.note_full(OSError(errno.ENOSPC, "No space left on device"))
    (full,) = facts.facts()["faults"]
    assert full["fault"].startswith("node b cannot write its log (No space left on device)")
    facts.log_faults()
    facts.log_faults()
    assert "has not finished a sync" not in caplog.text
    facts.note_room()
    assert facts.facts()["faults"] == [late]


def test_a_full_disk_that_another_node_reports_is_known_of_that_node(tmp_path: Path) -> None:
    other = Facts(b"", tmp_path)
    other.cluster = cast(Any, SimpleNamespace(name="b", peers=[]))
    members = [
        MemberStatus(name, 1, name, "follower", True, 9, 0, 0, 0.0, None, False, "replicate")
        for name in ("b", "a")
    ]
    status = ClusterStatus("a", 1, "c0ffee", "", {}, None, 2, 2, 2, 0, members)
    for is_full in (False, True):
        if is_full:
            other.note_full(OSError(errno.ENOSPC, "No space left on device"))
        facts = Facts(other.report())
        facts.cluster = cast(Any, SimpleNamespace(name="a", peers=[]))
        facts.member.status = lambda: status  # type: ignore[method-assign]
        assert [one.can_write for one in facts.nodes()] == [True, not is_full]


@pytest.mark.parametrize(("leader", "state"), [("a", "degraded"), ("c", "ok"), ("", "ok")])
def test_a_node_that_follows_has_the_state_that_its_leader_tells(leader: str, state: str) -> None:
    facts = ClusterFacts(Settings(), cast(Any, SimpleNamespace(name="b", peers=[])))
    status = ClusterStatus("b", 2, "c0ffee", "", {}, None, 3, 3, 2, 1, [])
    reports = SimpleNamespace(told_state=lambda name: "degraded" if name == "a" else "")
    facts.member = cast(Any, SimpleNamespace(status=lambda: status, reports=reports))
    facts.leader = leader
    assert facts.state() == state
    facts.note_full(OSError(errno.ENOSPC, "No space left on device"))
    assert facts.state() == "degraded"


def test_an_expired_certificate_is_told_and_reported(tmp_path: Path) -> None:
    facts = ClusterFacts(Settings(data=tmp_path), cast(Any, SimpleNamespace(name="b", peers=[])))
    status = ClusterStatus("b", 2, "c0ffee", "", {}, None, 3, 3, 2, 1, [])
    facts.member = cast(Any, SimpleNamespace(status=lambda: status))
    facts.certificates = lambda: [("/etc/b.pem", 4_000_000_000_000), ("/etc/unread.pem", 0)]
    assert facts.facts()["faults"] == []
    facts.certificates = lambda: [("/etc/b.pem", 4_000_000_000_000), ("/etc/ca.pem", 1_000)]
    (fault,) = facts.facts()["faults"]
    assert fault["fault"].startswith("the certificate /etc/ca.pem of node b has expired")
    found = Facts(facts.report()).report_of("b")
    assert found is not None and found.expired_certificate == "/etc/ca.pem"


def test_a_leader_whose_clock_is_wrong_logs_that_another_node_may_lead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report = msgspec.json.decode(Facts(b"", tmp_path).report())
    report["now_ms"] += 3_600_000
    facts = Facts(msgspec.json.encode(report))
    facts.cluster = cast(Any, SimpleNamespace(name="a", peers=[]))
    members = [
        MemberStatus(name, 1, name, "follower", True, 9, 0, 0, 0.0, None, False, "replicate")
        for name in ("a", "b", "c")
    ]
    status = ClusterStatus("a", 1, "c0ffee", "", {}, None, 3, 3, 2, 1, members)
    facts.member.status = lambda: status  # type: ignore[method-assign]
    facts._clock = cast(Any, SimpleNamespace(ahead_ms=lambda: 0))
    facts.leader = "a"
    for _ in range(2):
        facts.log_faults()
    assert "the clock of node a is 60 min behind the clocks of most nodes" in caplog.text
    assert "or let another node lead" in caplog.text
    assert "ctl cluster drain a" not in caplog.text
