"""Names in paths. A vhost may be called `/`, which stands in a path as %2F.

Routes are matched on the path as it was sent, so that %2F does not end a name; what stands for a
name is decoded when it is asked for.
"""

from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class RawPath:
    """Lets routes see the path as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def path_name(request: Request, name: str) -> str:
    """The name that a part of the path stands for."""
    return unquote(request.path_params[name], errors="surrogateescape")


def printable(name: str) -> str:
    """A name for JSON: bytes that are not UTF-8 as `\\xNN`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
