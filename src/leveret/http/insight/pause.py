"""Pause and resume queues.

PUT     /api/queues/{vhost}/{name}/pause    stop deliveries
DELETE  /api/queues/{vhost}/{name}/pause    resume deliveries

Both need the permission *configure* on the queue. The answer comes when the change is on disk.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import CONFIGURE
from leveret.engine.vhosts import pausing
from leveret.http.framework.operations import Operation
from leveret.http.framework.permissions import permitted_queue
from leveret.http.framework.request_parts import node_of, user_of


async def pause_queue(request: Request) -> Response:
    node = node_of(request)
    queue = permitted_queue(request, CONFIGURE)
    with node.turn():
        pausing.pause(node.broker.register, queue, user_of(request).name)
    await node.synced()
    return Response(status_code=204)


async def resume_queue(request: Request) -> Response:
    node = node_of(request)
    queue = permitted_queue(request, CONFIGURE)
    with node.turn():
        pausing.resume(node.broker.register, queue)
    await node.synced()
    return Response(status_code=204)


_PATH: Final = "/api/queues/{vhost}/{name}/pause"
OPERATIONS: Final = (
    Operation(
        method="PUT",
        path=_PATH,
        handler=pause_queue,
        summary="Stop deliveries from a queue until it is resumed, also after restarts.",
        group="insight",
        status=204,
    ),
    Operation(
        method="DELETE",
        path=_PATH,
        handler=resume_queue,
        summary="Resume deliveries from a queue.",
        group="insight",
        status=204,
    ),
)
