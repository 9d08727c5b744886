"""Verify passwords without blocking the event loop: the hash is slow on purpose.

The runtime gives a function that computes a slow hash in a thread. One hash is computed at a time;
the other checks wait in a `FairQueue`. Equal questions share one computation.

Results are remembered as keyed digests of user, password and stored hash. When the stored hash
changes, the digests no longer match. The last right password of each user is remembered until the
process ends, and the last `WRONG_MAX` wrong ones. So a client that logs in again needs no hash,
neither with the right password nor with one that is out of date.

The first refusal of a password costs one slow hash, also if the user does not exist or has a fast
hash, so that the time does not tell the cases apart.
"""

import hashlib
import logging
import os
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from leveret.auth.fair_queue import Answer, FairQueue, PasswordCheck
from leveret.auth.hashes import SCRYPT, PasswordHash

log = logging.getLogger(__name__)

WRONG_MAX: Final = 10_000  # wrong passwords that are remembered; each takes about 200 bytes

Work = Callable[[], bool]
RunInThread = Callable[[Work, Answer], None]  # answers None if the work raised an error


class Question:
    """The question whether a password is the password of a user."""

    __slots__ = ("digest", "kept", "password", "user")

    def __init__(self, user: str, kept: PasswordHash | None, password: str, digest: bytes) -> None:
        self.user = user
        self.kept = kept  # the stored hash; None: the user does not exist
        self.password = password
        self.digest = digest


class PasswordVerifier:
    """Checks passwords against stored hashes."""

    def __init__(self, run_in_thread: RunInThread | None = None) -> None:
        self.run_in_thread = run_in_thread  # None: compute slow hashes in the caller's thread
        self._key = os.urandom(32)
        self._right: dict[str, bytes] = {}  # digest of the last successful check, by user
        self._wrong: OrderedDict[bytes, None] = OrderedDict()  # the oldest first
        self._open: dict[bytes, PasswordCheck] = {}  # checks that wait or run
        self._queue = FairQueue()
        self._is_running = False
        self._decoy = _decoy()

    def question(self, user: str, kept: PasswordHash | None, password: str) -> Question:
        text = kept.text if kept is not None else ""
        return Question(user, kept, password, self._digest(user, text, password))

    def note_right(self, user: str, kept: PasswordHash, password: str) -> None:
        """Remember a password that was just set: its first login needs no hash."""
        self._right[user] = self.question(user, kept, password).digest

    def maybe_known(self, question: Question) -> bool | None:
        """Return the answer if it needs no slow hash, else None."""
        kept = question.kept
        if kept is not None and kept.is_slow:
            if compare_digest(self._right.get(question.user, b""), question.digest):
                return True
        elif kept is not None and kept.matches(question.password):
            return True
        if question.digest in self._wrong:
            self._wrong.move_to_end(question.digest)
            return False
        return None

    def is_open(self, question: Question) -> bool:
        """Return True if an equal question waits for its answer."""
        return question.digest in self._open

    def check(
        self, question: Question, network: str, then: Answer, on_end: Answer
    ) -> Callable[[], None]:
        """Check a password, and call `then` with the answer, or with None if too many wait.

        `on_end` is called once for all equal questions, with the same value. It gets None if all
        of them were withdrawn. Return a function that withdraws the question.
        """
        check = self._open.get(question.digest)
        if check is not None:
            check.askers.append(then)
        else:
            work = self._work_of(question)
            check = PasswordCheck(network, question.user, question.digest, work, on_end)
            check.askers.append(then)
            self._open[question.digest] = check
            refused = self._queue.add(check)
            if refused is not None:
                self._end(refused, None)
            self._start_next()
        joined = check

        def withdraw() -> None:
            self._withdraw(joined, then)

        return withdraw

    def _withdraw(self, check: PasswordCheck, then: Answer) -> None:
        if self._open.get(check.digest) is not check or then not in check.askers:
            return
        check.askers.remove(then)
        if not check.askers and self._queue.remove(check):
            self._end(check, None)

    def _work_of(self, question: Question) -> Work:
        kept = question.kept
        is_slow = kept is not None and kept.is_slow
        compared = kept if kept is not None and is_slow else self._decoy
        password = question.password

        def work() -> bool:
            return compared.matches(password) and is_slow

        return work

    def _start_next(self) -> None:
        while not self._is_running:
            check = self._queue.take()
            if check is None:
                return
            self._is_running = True
            self._run_check(check)

    def _run_check(self, check: PasswordCheck) -> None:
        def on_checked(is_right: bool | None) -> None:
            self._is_running = False
            self._remember(check, is_right)
            self._end(check, is_right)
            self._start_next()

        if self.run_in_thread is None:
            on_checked(check.work())
            return
        try:
            self.run_in_thread(check.work, on_checked)
        except Exception:  # no thread could be started: the next check tries again
            log.exception("a password could not be verified: the login is refused for now")
            on_checked(None)

    def _remember(self, check: PasswordCheck, is_right: bool | None) -> None:
        if is_right:
            self._right[check.user] = check.digest
        elif is_right is False:
            self._wrong[check.digest] = None
            if len(self._wrong) > WRONG_MAX:
                self._wrong.popitem(last=False)

    def _end(self, check: PasswordCheck, is_right: bool | None) -> None:
        del self._open[check.digest]
        for then in (check.on_end, *check.askers):
            _tell(then, is_right)

    def _digest(self, user: str, kept: str, password: str) -> bytes:
        hasher = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, kept, password):
            data = part.encode("utf-8", "surrogateescape")
            hasher.update(len(data).to_bytes(8, "big") + data)
        return hasher.digest()


def _tell(then: Answer, is_right: bool | None) -> None:
    """Call one waiting callback; its failure must not affect the others."""
    try:
        then(is_right)
    except Exception:
        log.exception("completing a login failed: its client has to log in again")


def _decoy() -> PasswordHash:
    """Return a hash that takes as long as a real one and that no password matches."""
    salt, digest = (b64encode(os.urandom(size)).decode() for size in (16, 32))
    return PasswordHash(f"$scrypt$ln=14,r=8,p=1${salt}${digest}", SCRYPT)
