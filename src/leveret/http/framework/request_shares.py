"""Limit the requests of one user that run at the same time.

A slow request holds a connection, memory and a part of the event loop. One user may have
`USER_REQUESTS_MAX` of them, so that one user, or somebody with the user's password, leaves room for
all others. Administrators have no such limit.
"""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import ADMINISTRATOR, User

USER_REQUESTS_MAX: Final = 64
RETRY_AFTER_S: Final = "1"
_HOLDER: Final = "leveret.share"  # key in a scope: the user whose share the request takes from


class RequestShares:
    """The running requests of each user."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}

    def take(self, request: Request, user: User) -> None:
        """Count a request. Answer 429 if the user has too many."""
        if ADMINISTRATOR in user.tags:
            return
        running = self._running.get(user.name, 0)
        if running >= USER_REQUESTS_MAX:
            raise HTTPException(
                429,
                f"{running} requests of user '{user.name}' are running: try again",
                {"Retry-After": RETRY_AFTER_S},
            )
        self._running[user.name] = running + 1
        request.scope[_HOLDER] = user.name

    def give_back(self, request: Request) -> None:
        """Uncount a request that has been answered, if it was counted."""
        name: str | None = request.scope.pop(_HOLDER, None)
        if name is None:
            return
        if self._running[name] == 1:
            del self._running[name]
        else:
            self._running[name] -= 1
