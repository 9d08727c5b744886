"""Read the parts of a request: its node, user, path, query and slices of the event loop.

Nothing here checks permissions: `permissions` does.
"""

from urllib.parse import unquote

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import User
from leveret.http.framework.clients import client_of
from leveret.http.framework.node import NodeView
from leveret.slices import Slices


def node_of(request: Request) -> NodeView:
    """Return the node that answers the request."""
    node: NodeView = request.app.state.node
    return node


def user_of(request: Request) -> User:
    """Return the user who sent the request. The operation has already logged them in."""
    user: User = request.state.user
    return user


def host_of(request: Request) -> str:
    """Return the address that the request comes from."""
    return client_of(request).host


def part_of(request: Request, name: str) -> str:
    """Return a named part of the path, decoded."""
    return unquote(request.path_params[name], errors="surrogateescape")


def number_of(query: QueryParams, name: str, default: int, most: int) -> int:
    """Return a number of the query. Answer 400 if it is not a number, or larger than `most`."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or int(text) > most:
        raise HTTPException(400, f"{name} must be a number up to {most}")
    return int(text)


def slices_of(request: Request) -> Slices:
    """Return slices for a request that reads many messages or objects."""
    user: User | None = getattr(request.state, "user", None)
    return Slices(request.app.state.loop_share, user.name if user is not None else "")
