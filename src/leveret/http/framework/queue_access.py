"""The queue that a request is about, and numbers of its query."""

from typing import Final

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import CONFIGURE, READ
from leveret.engine.queues.queue import Queue
from leveret.errors import NotFoundError
from leveret.http.framework.login import facts_of, part_of, user_of, vhost_of
from leveret.slices import Slices

_REFUSED: Final = {
    READ: "User not authorised to read from the queue",
    CONFIGURE: "User not authorised to configure the queue",
}


def queue_of(request: Request) -> Queue:
    """The queue that the path names; 404 where there is none."""
    vhost = facts_of(request).broker.vhost(vhost_of(request))
    name = part_of(request, "name")
    queue = vhost.queues.get(name)
    if queue is None:
        raise NotFoundError(f"no queue '{name}' in vhost '{vhost.name}'")
    return queue


def permitted_queue(request: Request, permission: str) -> Queue:
    """The same, if the user may do this with it."""
    queue = queue_of(request)
    if not user_of(request).may(permission, queue.vhost, "queue", queue.name):
        raise HTTPException(401, _REFUSED[permission])
    return queue


def number_of(query: QueryParams, name: str, default: int, most: int) -> int:
    """A number of the query; 400 where it is none, or too large."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or int(text) > most:
        raise HTTPException(400, f"{name} must be a number up to {most}")
    return int(text)


def slices_of(request: Request) -> Slices:
    """Return slices for a request that reads many messages or objects."""
    return Slices(request.app.state.loop_share)
