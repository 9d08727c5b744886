"""The rules about jobs that a run of chaos checks."""

from tools.chaos_jobs.ledger import Event, balance
from tools.chaos_jobs.stories import outages_of, story


def _got(at: float, token: int, asked: float) -> Event:
    return {"kind": "got", "at": at, "asked": asked, "id": 7, "token": token, "name": "job"}


def test_an_older_token_in_a_late_answer_is_no_fault() -> None:
    assert balance([_got(2.0, 20, asked=1.5), _got(3.0, 10, asked=1.0)]).faults == []


def test_an_older_token_for_a_newer_call_is_a_fault() -> None:
    assert balance([_got(2.0, 20, asked=1.5), _got(4.0, 10, asked=3.0)]).faults == [
        "7: token 10 after 20"
    ]


def test_a_token_is_handed_out_once() -> None:
    assert balance([_got(2.0, 20, asked=1.5), _got(2.5, 20, asked=1.5)]).faults == [
        "7: token 20 after 20"
    ]


def _event(kind: str, at: float, **facts: object) -> Event:
    return {"kind": kind, "at": at, "by": "someone", **facts}


def _acked(at: float, token: int, status: int = 200) -> Event:
    return _event("acked", at, id=7, token=token, status=status, asked=at - 0.1)


def _taken_back() -> list[Event]:
    """A job that is handed out again after Redis alone has taken its ack."""
    got = {"topic": "letters", "attempt": 1, "by": "worker"}
    return [
        _event("begin", 1.0),
        _event("put", 1.5, names=["job"]),
        _event("told", 1.6, names=["job"], status=200, ids=[7]),
        _got(2.0, 20, asked=1.9) | got,
        _event("quick", 2.5, id=7, token=20),
        _acked(2.6, 20),
        _event("outage", 3.0, what="shard for 4.0 s"),
        _event("fault", 3.0, what="freeze shard 0"),
        _event("fault", 7.0, what="resume shard 0"),
        _got(8.0, 30, asked=7.9) | got,
        _acked(9.0, 30),
    ]


def test_a_job_that_comes_back_after_its_ack_is_counted_and_told() -> None:
    account = balance(_taken_back())
    assert (account.quick, account.came_back, account.twice, account.lost) == (1, 1, 1, 0)
    assert account.wrong == [7]
    told = story(_taken_back(), 7)
    assert [line.split()[0] for line in told] == [
        "0.500", "0.600", "1.000", "1.500", "1.600", "2.000", "6.000", "7.000", "8.000"
    ]  # fmt: skip
    assert "Redis alone takes the ack" in told[3]
    assert "freeze shard 0" in told[5]
    before, after = outages_of(_taken_back())
    assert "1 acked by Redis alone" in before and "AFTER" not in before
    assert "shard for 4.0 s" in after and "1 HANDED OUT AFTER THEIR ACK" in after


def test_nobody_knows_the_end_of_an_ack_that_a_frozen_server_did_not_answer() -> None:
    told = _event("told", 1.0, names=["job"], status=200, ids=[7])
    account = balance([told, _got(2.0, 20, asked=1.5), _acked(8.0, 20, status=500)])
    assert (account.faults, account.cut_off) == ([], 1)


def test_a_refused_job_may_be_handed_out_only_if_redis_and_a_shard_were_silent() -> None:
    def refused_at(at: float) -> list[Event]:
        told = _event("told", at, names=["job"], status=500, ids=None)
        return [*steps, told, _got(30.0, 20, asked=29.0)]

    steps = [
        _event("fault", 2.0, what="freeze shard 0"),
        _event("fault", 5.0, what="freeze redis"),
        _event("fault", 8.0, what="resume redis"),
        _event("fault", 20.0, what="resume shard 0"),
    ]
    account = balance(refused_at(9.0))
    assert (account.faults, account.late) == ([], 1)
    for at in (4.0, 19.0):
        account = balance(sorted(refused_at(at), key=lambda event: float(event["at"])))
        assert (account.faults, account.late) == (["job was refused and handed out"], 0)
