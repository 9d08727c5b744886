"""Password checks: computed in a thread, remembered, and slow for every new guess."""

from leveret.auth.fair_queue import NETWORK_WAITING_MAX, Answer
from leveret.auth.hashes import PasswordHash, hash_password, quick_hash
from leveret.auth.password_verifier import WRONG_MAX, PasswordVerifier, Work

KEPT = hash_password("right")


class Bench:
    """A thread stand-in: keeps work until the test runs it."""

    def __init__(self) -> None:
        self.work: list[tuple[Work, Answer]] = []
        self.done = 0

    def put(self, work: Work, told: Answer) -> None:
        self.work.append((work, told))

    def do_one(self) -> None:
        work, told = self.work.pop(0)
        self.done += 1
        told(work())

    def do_all(self) -> None:
        while self.work:
            self.do_one()


def asked(
    verifier: PasswordVerifier,
    kept: PasswordHash | None,
    password: str,
    user: str = "u",
    network: str = "n",
) -> list[bool | None]:
    """Ask as a login does; return the list that gets the answer."""
    answers: list[bool | None] = []
    question = verifier.question(user, kept, password)
    known = verifier.maybe_known(question)
    if known is not None:
        return [known]
    verifier.check(question, network, answers.append, lambda _: None)
    return answers


def test_slow_hash_is_computed_in_the_thread_once_and_then_remembered() -> None:
    bench = Bench()
    verifier = PasswordVerifier(bench.put)
    first, second = asked(verifier, KEPT, "right"), asked(verifier, KEPT, "right")
    assert (first, second, len(bench.work)) == ([], [], 1)
    bench.do_one()
    assert (first, second) == ([True], [True])
    assert asked(verifier, KEPT, "right") == [True]
    assert not bench.work


def test_changed_hash_makes_remembered_answers_worthless() -> None:
    verifier = PasswordVerifier()
    assert asked(verifier, KEPT, "right") == [True]
    changed = hash_password("other")
    assert asked(verifier, changed, "right") == [False]
    assert asked(verifier, changed, "other") == [True]


def test_wrong_password_is_not_the_remembered_one() -> None:
    verifier = PasswordVerifier()
    assert asked(verifier, KEPT, "right") == [True]
    assert asked(verifier, KEPT, "wrong") == [False]
    assert asked(verifier, KEPT, "right", user="somebody else") == [True]


def test_every_first_refusal_costs_one_slow_hash() -> None:
    """An unknown user and one with a quick hash take the time of one with a slow hash."""
    bench = Bench()
    verifier = PasswordVerifier(bench.put)
    unknown = asked(verifier, None, "x")
    quick = asked(verifier, quick_hash("right"), "wrong")
    slow = asked(verifier, KEPT, "wrong")
    assert (unknown, quick, slow) == ([], [], [])
    bench.do_all()
    assert (unknown, quick, slow, bench.done) == ([False], [False], [False], 3)


def test_repeated_wrong_password_costs_nothing() -> None:
    bench = Bench()
    verifier = PasswordVerifier(bench.put)
    for kept in (KEPT, None):
        asked(verifier, kept, "stale")
        bench.do_all()
        assert asked(verifier, kept, "stale") == [False]
        assert not bench.work


def test_wrong_passwords_are_forgotten_in_the_end() -> None:
    verifier = PasswordVerifier(lambda work, told: told(False))  # as if the hash were computed
    for number in range(WRONG_MAX + 1):
        assert asked(verifier, KEPT, str(number)) == [False]
    assert verifier.maybe_known(verifier.question("u", KEPT, "0")) is None
    assert verifier.maybe_known(verifier.question("u", KEPT, "1")) is False


def test_quick_hash_that_fits_is_answered_at_once() -> None:
    bench = Bench()
    assert asked(PasswordVerifier(bench.put), quick_hash("right"), "right") == [True]
    assert not bench.work


def test_too_many_questions_of_one_network_are_not_answered() -> None:
    bench = Bench()
    verifier = PasswordVerifier(bench.put)
    for number in range(NETWORK_WAITING_MAX + 1):  # one of them is being computed
        assert asked(verifier, None, str(number)) == []
    assert asked(verifier, None, "one more") == [None]
    assert asked(verifier, KEPT, "right", network="another") == []
    assert len(bench.work) == 1


def test_flood_of_one_network_delays_another_by_one_hash() -> None:
    bench = Bench()
    verifier = PasswordVerifier(bench.put)
    for number in range(NETWORK_WAITING_MAX):
        asked(verifier, None, str(number))
    answers = asked(verifier, KEPT, "right", network="another")
    bench.do_one()  # it was running already
    bench.do_one()
    bench.do_one()
    assert answers == [True]


def test_withdrawn_question_is_not_computed() -> None:
    bench = Bench()
    verifier = PasswordVerifier(bench.put)
    asked(verifier, None, "running")
    ends: list[bool | None] = []
    answers: list[bool | None] = []
    question = verifier.question("u", KEPT, "right")
    withdraw = verifier.check(question, "n", answers.append, ends.append)
    withdraw_second = verifier.check(question, "n", answers.append, ends.append)
    withdraw()
    assert verifier.is_open(question)
    withdraw_second()
    assert not verifier.is_open(question)
    bench.do_all()
    assert (bench.done, answers, ends) == (1, [], [None])


def test_hash_that_could_not_be_computed_is_no_wrong_password() -> None:
    verifier = PasswordVerifier(lambda work, told: told(None))
    assert asked(verifier, KEPT, "right") == [None]
    assert verifier.maybe_known(verifier.question("u", KEPT, "right")) is None


def test_fault_of_one_asker_does_not_keep_the_answer_from_others() -> None:
    bench = Bench()
    verifier = PasswordVerifier(bench.put)

    def break_down(is_right: bool | None) -> None:
        raise RuntimeError("the connection broke")

    question = verifier.question("u", KEPT, "right")
    verifier.check(question, "n", break_down, lambda _: None)
    answers = asked(verifier, KEPT, "right")
    bench.do_one()
    assert answers == [True]


def test_thread_that_cannot_start_refuses_one_check_and_the_next_one_tries_again() -> None:
    bench = Bench()
    faults = [RuntimeError("can't start new thread")]

    def put(work: Work, told: Answer) -> None:
        if faults:
            raise faults.pop()
        bench.put(work, told)

    verifier = PasswordVerifier(put)
    assert asked(verifier, KEPT, "right") == [None]
    second = asked(verifier, KEPT, "right")
    bench.do_one()
    assert second == [True]
