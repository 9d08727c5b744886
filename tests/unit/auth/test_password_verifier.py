"""Password checks: computed in a thread, remembered, and slow for every guess."""

from leveret.auth.hashes import PasswordHash, hash_password, quick_hash
from leveret.auth.password_verifier import WAITING_MAX, Answer, PasswordVerifier, Work

KEPT = hash_password("right")


class Bench:
    """A thread stand-in: keeps work until the test runs it."""

    def __init__(self) -> None:
        self.work: list[tuple[Work, Answer]] = []

    def put(self, work: Work, told: Answer) -> None:
        self.work.append((work, told))

    def do_one(self) -> None:
        work, told = self.work.pop(0)
        told(work())


def asked(
    verification: PasswordVerifier, kept: PasswordHash | None, password: str, user: str = "u"
) -> list[bool]:
    answers: list[bool] = []
    verification.check(user, kept, password, answers.append)
    return answers


def test_slow_hash_is_computed_in_the_thread_once_and_then_remembered() -> None:
    bench = Bench()
    verification = PasswordVerifier(bench.put)
    first, second = asked(verification, KEPT, "right"), asked(verification, KEPT, "right")
    assert (first, second, len(bench.work)) == ([], [], 1)
    bench.do_one()
    assert (first, second) == ([True], [True])
    assert asked(verification, KEPT, "right") == [True]
    assert not bench.work


def test_changed_hash_makes_what_was_remembered_worthless() -> None:
    verification = PasswordVerifier()
    assert asked(verification, KEPT, "right") == [True]
    changed = hash_password("other")
    assert asked(verification, changed, "right") == [False]
    assert asked(verification, changed, "other") == [True]


def test_wrong_password_is_not_what_was_remembered() -> None:
    verification = PasswordVerifier()
    assert asked(verification, KEPT, "right") == [True]
    assert asked(verification, KEPT, "wrong") == [False]
    assert asked(verification, KEPT, "right", user="somebody else") == [True]


def test_every_refusal_costs_one_slow_hash() -> None:
    """An unknown user and one with a quick hash take the time of one with a slow hash."""
    bench = Bench()
    verification = PasswordVerifier(bench.put)
    unknown = asked(verification, None, "x")
    quick = asked(verification, quick_hash("right"), "wrong")
    slow = asked(verification, KEPT, "wrong")
    assert (unknown, quick, slow, len(bench.work)) == ([], [], [], 3)
    for _ in range(3):
        bench.do_one()
    assert (unknown, quick, slow) == ([False], [False], [False])


def test_quick_hash_that_fits_is_answered_at_once() -> None:
    bench = Bench()
    assert asked(PasswordVerifier(bench.put), quick_hash("right"), "right") == [True]
    assert not bench.work


def test_too_many_questions_are_refused() -> None:
    bench = Bench()
    verification = PasswordVerifier(bench.put)
    for number in range(WAITING_MAX):
        assert asked(verification, None, str(number)) == []
    assert asked(verification, None, "one more") == [False]
    assert len(bench.work) == WAITING_MAX


def test_fault_of_one_who_asked_does_not_keep_the_answer_from_others() -> None:
    bench = Bench()
    verification = PasswordVerifier(bench.put)

    def break_down(is_right: bool) -> None:
        raise RuntimeError("the connection broke")

    verification.check("u", KEPT, "right", break_down)
    answers = asked(verification, KEPT, "right")
    bench.do_one()
    assert answers == [True]
