"""The status of an HTTP request that the storage cannot serve: 503 with the reason, never 400."""

import errno

import pytest

from leveret.errors import CorruptionError, LeveretError, NotFoundError, StorageError
from leveret.http.framework.responses import status_of
from leveret.testing import broker
from leveret.testing.disk import FakeDisk
from tests.http.insight_client import ask


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.EIO, "Input/output error"), (errno.ENOSPC, "No space left on device")],
)
def test_change_that_is_not_on_disk_is_answered_with_503_and_the_reason(
    code: int, reason: str
) -> None:
    disk = FakeDisk()
    with broker(http=True, disk=disk) as server:
        assert ask(server, "PUT", "/queues/%2F/first", {"durable": True})[0] == 201
        for nth in range(1, 7):  # the write is tried again, and a request may come to wait late
            disk.fail_write(nth, code)
        status, body = ask(server, "PUT", "/queues/%2F/second", {"durable": True})
        assert (status, body["error"]) == (503, "Service Unavailable")
        assert body["reason"] == f"the log cannot be written: {reason}"
        disk.mend()


def test_backup_of_a_node_whose_log_has_failed_is_answered_with_503() -> None:
    disk = FakeDisk()
    with broker(http=True, disk=disk) as server:
        disk.fail_sync()
        assert ask(server, "PUT", "/queues/%2F/q", {"durable": True})[0] == 503
        status, body = ask(server, "GET", "/backup")
        assert status == 503
        assert body["reason"] == "the log cannot be written: Input/output error"


def test_archive_that_is_no_backup_is_a_fault_of_the_client() -> None:
    with broker(http=True, disk=FakeDisk()) as server:
        status, body = ask(server, "POST", "/restore/%2F/q", {"not": "an archive"})
        assert (status, body["error"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("fault", "status"),
    [(StorageError("x"), 503), (CorruptionError("x"), 500), (NotFoundError("x"), 404)],
)
def test_statuses_of_errors(fault: LeveretError, status: int) -> None:
    assert status_of(fault) == status
