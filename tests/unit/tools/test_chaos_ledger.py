"""The rules about jobs that a run of chaos checks."""

from tools.chaos_jobs.ledger import Event, balance


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
