"""Finds the route of a path without trying all of them.

There are a hundred routes and more, and a router tries one after the other. Here the first two
parts of a path choose which ones are tried at all. A route whose own first two parts have a
parameter is tried for every path, in its place among the others.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

_API: Final = "/api/"
# Where the name of an exchange stands; an empty one is the default exchange's.
_NO_EXCHANGE: Final = re.compile("^(/api/exchanges/[^/]+|/api/bindings/[^/]+/e)//")


def normalized_path(path: str) -> str:
    """A path as routes know it. RabbitMQ: a slash at its end means nothing; clients send some."""
    if not path.startswith(_API) or path == _API:
        return path
    if "//" in path:
        path = _NO_EXCHANGE.sub(r"\1/amq.default/", path)
    return path.removesuffix("/")


class PrefixRouter(Router):
    """All routes of the application, by the beginning of their paths."""

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes, redirect_slashes=False)
        begins = {_begin(route.path) for route in routes}
        self._routers = {begin: _router(routes, begin) for begin in begins if "{" not in begin}
        self._others = _router(routes, None)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = self._routers.get(_begin(scope["path"]), self._others)
        await router.app(scope, receive, send)


def _begin(path: str) -> str:
    return "/".join(path.split("/", 3)[:3])


def _router(routes: Sequence[Route], begin: str | None) -> Router:
    chosen = [route for route in routes if "{" in _begin(route.path) or _begin(route.path) == begin]
    return Router(chosen, redirect_slashes=False)
