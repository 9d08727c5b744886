"""Find the route of a path without trying all routes.

There are more than a hundred routes, and Starlette's router tries one after the other. Here the
first two parts of a path choose the routes that are tried. A route with a parameter in its first
two parts is tried for every path, in its place among the others.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

_API: Final = "/api/"
# Paths with an empty exchange name, which means the default exchange.
_NO_EXCHANGE: Final = re.compile("^(/api/exchanges/[^/]+|/api/bindings/[^/]+/e)//")


def normalized_path(path: str) -> str:
    """Return a path in the form that the routes have.

    RabbitMQ: a slash at the end means nothing; some clients send it.
    """
    if not path.startswith(_API) or path == _API:
        return path
    if "//" in path:
        path = _NO_EXCHANGE.sub(r"\1/amq.default/", path)
    return path.removesuffix("/")


class PrefixRouter(Router):
    """All routes of the application, by the first two parts of their paths."""

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes, redirect_slashes=False)
        by_prefix = [(_prefix(route.path), route) for route in routes]
        prefixes = {prefix for prefix, _ in by_prefix if "{" not in prefix}
        self._routers = {prefix: _router(by_prefix, prefix) for prefix in prefixes}
        self._others = _router(by_prefix, None)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = self._routers.get(_prefix(scope["path"]), self._others)
        await router.app(scope, receive, send)


def _prefix(path: str) -> str:
    return "/".join(path.split("/", 3)[:3])


def _router(routes: Sequence[tuple[str, Route]], prefix: str | None) -> Router:
    chosen = [route for found, route in routes if found == prefix or "{" in found]
    return Router(chosen, redirect_slashes=False)
