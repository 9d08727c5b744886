"""A short round of kills and outages; `make chaos-jobs` has the long one."""

import pytest

from tools.chaos_jobs.ledger import balance
from tools.chaos_jobs.run import Plan, run

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


def test_every_job_is_done_once_whatever_is_killed(seed: int) -> None:
    # What is stuck for good is still found in the end: a busy machine may take its time.
    plan = Plan(
        seconds=6,
        workers=3,
        producers=1,
        node_kills=2,
        lease_s=2.0,
        slack_s=60.0,
        seed=seed,
        clock_steps_s=1.0,
        rushers=0,
        outages="",
    )
    account = run(plan, print)
    print(account)
    assert account.faults == []
    assert account.done > 20


def test_every_job_is_done_once_although_redis_loses_its_memory(seed: int) -> None:
    plan = Plan(
        seconds=12,
        workers=2,
        producers=1,
        node_kills=0,
        slack_s=60.0,
        seed=seed,
        outages="memory",
        rushers=4,
    )
    account = run(plan, print)
    print(account)
    assert len(account.outages) == 2  # before and after it
    assert account.faults == []
    assert account.done > 20


def test_the_books_find_what_is_wrong() -> None:
    put = {"kind": "put", "at": 0.0, "names": ["a", "b", "c"]}
    told = [
        {"kind": "told", "at": 1.0, "status": 200, "names": ["a"], "ids": [1]},
        {"kind": "told", "at": 1.0, "status": 500, "names": ["b"], "ids": None},
        {"kind": "told", "at": 1.0, "status": 200, "names": ["c"], "ids": [3]},
    ]

    def got(at: float, id: int, name: str, token: int) -> dict[str, object]:
        return {"kind": "got", "at": at, "asked": at - 0.5, "id": id, "name": name, "token": token}

    def acked(at: float, id: int, token: int) -> dict[str, object]:
        facts = {"id": id, "token": token, "status": 200, "asked": at - 0.1}
        return {"kind": "acked", "at": at, **facts}

    fine = [put, *told, got(2, 1, "a", 7), acked(3, 1, 7), got(2, 3, "c", 8), acked(3, 3, 8)]
    assert balance(fine).faults == []
    for wrong, text in (
        ([*fine, got(9, 1, "a", 9)], "came back"),
        ([*fine, got(9, 2, "b", 9)], "refused and handed out"),
        ([*fine, got(2.5, 4, "a", 9)], "there twice"),
        (fine[:-2], "never handed out"),
        (fine[:-1], "not done"),
        ([*fine[:-2], got(2, 3, "c", 8), got(2.1, 3, "c", 8), acked(3, 3, 8)], "token"),
        ([*fine[:-1], got(2.5, 3, "c", 9), acked(3, 3, 8)], "stale token"),
        ([*fine, acked(4, 3, 8)], "done twice"),
    ):
        assert any(text in fault for fault in balance(wrong).faults), text
