"""Verify passwords without blocking the event loop: the hash is slow on purpose.

The runtime gives a function that computes slow hashes in a thread, one after the other. Equal
questions that wait share one computation. A successful check is remembered as a keyed digest of
user, password and hash until the process ends; when the stored hash changes, the digest no longer
matches.

Every failed check costs one slow hash, also if the user does not exist or has a fast hash, so that
the time does not tell the cases apart.
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

WAITING_MAX: Final = 1000  # checks that wait for the thread; more are refused unchecked

Work = Callable[[], bool]
Answer = Callable[[bool], None]
RunInThread = Callable[[Work, Answer], None]


class PasswordVerifier:
    """Checks passwords against stored hashes."""

    def __init__(self, run_in_thread: RunInThread | None = None) -> None:
        self.run_in_thread = run_in_thread  # None: compute slow hashes in the caller's thread
        self._key = os.urandom(32)
        self._verified: dict[str, bytes] = {}  # digest of the last successful check, by user
        self._waiting: dict[bytes, list[Answer]] = {}  # callbacks by digest
        self._decoy = _decoy()

    def check(self, user: str, kept: PasswordHash | None, password: str, then: Answer) -> None:
        """Check a password and call `then` with the result. `kept` is None for an unknown user."""
        digest = self._digest(user, kept.text if kept is not None else "", password)
        if kept is not None and self._is_known(user, kept, password, digest):
            then(True)
            return
        waiting = self._waiting.get(digest)
        if waiting is not None:
            waiting.append(then)
        elif len(self._waiting) >= WAITING_MAX:
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
        compared = kept if kept is not None and is_slow else self._decoy

        def work() -> bool:
            return compared.matches(password) and is_slow

        def on_checked(is_right: bool) -> None:
            if is_right:
                self._verified[user] = digest
            for then in self._waiting.pop(digest):
                _tell(then, is_right)

        if self.run_in_thread is None:
            on_checked(work())
        else:
            self.run_in_thread(work, on_checked)

    def _digest(self, user: str, kept: str, password: str) -> bytes:
        hasher = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, kept, password):
            data = part.encode("utf-8", "surrogateescape")
            hasher.update(len(data).to_bytes(8, "big") + data)
        return hasher.digest()


def _tell(then: Answer, is_right: bool) -> None:
    """Call one waiting callback; its failure must not affect the others."""
    try:
        then(is_right)
    except Exception:
        log.exception("a login failed by an error of the broker")


def _decoy() -> PasswordHash:
    """Return a hash that takes as long as a real one and that no password matches."""
    salt, digest = (b64encode(os.urandom(size)).decode() for size in (16, 32))
    return PasswordHash(f"$scrypt$ln=14,r=8,p=1${salt}${digest}", SCRYPT)
