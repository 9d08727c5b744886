"""Verification of passwords, which is slow on purpose and must not stop the loop.

Slow hashes are computed run_in_thread, by whatever the runtime gives for that, one after the other;
equal questions that wait share one answer. What was found right is remembered as a keyed digest of
user, password and hash until the process ends: a change of the hash makes it worthless.

Every refusal costs one slow hash, also where the user does not exist or has a quick one, so that
the time tells nothing about which it is.
"""

import hashlib
import logging
import os
from base64 import b64encode
from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from leveret.auth.hashes import SCRYPT, PasswordHash

log = logging.getLogger(__name__)

QUESTIONS_MAX: Final = 1000  # that wait; more are refused unseen

Work = Callable[[], bool]
Answer = Callable[[bool], None]
RunInThread = Callable[[Work, Answer], None]


class PasswordVerifier:
    """Answers whether passwords are right."""

    def __init__(self, run_in_thread: RunInThread | None = None) -> None:
        self.run_in_thread = run_in_thread  # None: slow hashes are computed in place
        self._key = os.urandom(32)
        self._verified: dict[str, bytes] = {}  # by user
        self._waiting: dict[bytes, list[Answer]] = {}
        self._decoy = _decoy()

    def ask(self, user: str, kept: PasswordHash | None, password: str, then: Answer) -> None:
        """Tell whether this is the password of a user, whose hash is None if there is no such."""
        digest = self._digest(user, kept.text if kept is not None else "", password)
        if kept is not None and self._is_known(user, kept, password, digest):
            then(True)
            return
        waiting = self._waiting.get(digest)
        if waiting is not None:
            waiting.append(then)
        elif len(self._waiting) >= QUESTIONS_MAX:
            then(False)
        else:
            self._waiting[digest] = [then]
            self._compute(user, kept, password, digest)

    def _is_known(self, user: str, kept: PasswordHash, password: str, digest: bytes) -> bool:
        if kept.is_slow:
            return compare_digest(self._verified.get(user, b""), digest)
        return kept.matches(password)

    def _compute(self, user: str, kept: PasswordHash | None, password: str, digest: bytes) -> None:
        is_slow = kept is not None and kept.is_slow
        judged = kept if kept is not None and is_slow else self._decoy

        def work() -> bool:
            return judged.matches(password) and is_slow

        def told(is_right: bool) -> None:
            if is_right:
                self._verified[user] = digest
            for then in self._waiting.pop(digest):
                _tell(then, is_right)

        if self.run_in_thread is None:
            told(work())
        else:
            self.run_in_thread(work, told)

    def _digest(self, user: str, kept: str, password: str) -> bytes:
        hasher = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, kept, password):
            data = part.encode("utf-8", "surrogateescape")
            hasher.update(len(data).to_bytes(8, "big") + data)
        return hasher.digest()


def _tell(then: Answer, is_right: bool) -> None:
    """Tell one who asked; a fault there is not the fault of the others who wait."""
    try:
        then(is_right)
    except Exception:
        log.exception("a login broke")


def _decoy() -> PasswordHash:
    """A hash that takes the time of a real one, and that no password fits."""
    salt, digest = (b64encode(os.urandom(size)).decode() for size in (16, 32))
    return PasswordHash(f"$scrypt$ln=14,r=8,p=1${salt}${digest}", SCRYPT)
