"""Backup and restore over HTTP, as streams of any length in bounded memory.

    GET  /api/backup                     an archive of the node (docs/formats/backup.md)
    GET  /api/backup/{vhost}/{queue}     an archive of one queue
    POST /api/restore/{vhost}/{queue}    publish the archive of a queue into a queue of this name

An archive ends with `complete.json`. An answer that breaks off lacks it, so it cannot be taken for
a complete one.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from leveret.errors import CorruptionError, NewerFormatError
from leveret.http.framework.operations import Access, Operation, require_current_user
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response

MEDIA_TYPE: Final = "application/x-tar"
STALLED_AFTER_S: Final = 60.0  # a client that reads nothing for this time is disconnected


class RestoreResult(msgspec.Struct):
    """Answer to a restore."""

    queue: str
    messages: int


class _Stream(StreamingResponse):
    """A stream with a limit on how long it waits for the client: a backup holds disk space."""

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED_AFTER_S):
                await send(message)

        await super().stream_response(send_in_time)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            close = getattr(self.body_iterator, "aclose", None)
            if close is not None:
                await close()


async def backup_node(request: Request) -> Response:
    return _stream(await node_of(request).backups.node(), "leveret")


async def backup_queue(request: Request) -> Response:
    vhost = vhost_of(request)
    name = part_of(request, "queue")
    return _stream(await node_of(request).backups.queue(vhost, name), "queue")


async def restore_queue(request: Request) -> Response:
    vhost = vhost_of(request)
    name = part_of(request, "queue")
    try:
        count = await node_of(request).backups.restore(vhost, name, _pieces(request))
    except (CorruptionError, NewerFormatError) as fault:  # the archive, not the disk
        raise HTTPException(400, str(fault)) from fault
    return json_response(RestoreResult(name, count))


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield the body in pieces. Answer 401 if the user loses the right meanwhile."""
    async for piece in request.stream():
        await require_current_user(request)
        yield piece


def _stream(pieces: AsyncIterator[bytes], name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}.backup"'}
    return _Stream(pieces, headers=headers, media_type=MEDIA_TYPE)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/backup",
        handler=backup_node,
        summary="Back up the node.",
        group="backup",
        access=Access.ADMINISTRATOR,
        media=MEDIA_TYPE,
        is_export=True,
    ),
    Operation(
        method="GET",
        path="/api/backup/{vhost}/{queue}",
        handler=backup_queue,
        summary="Back up one queue.",
        group="backup",
        access=Access.ADMINISTRATOR,
        media=MEDIA_TYPE,
        is_export=True,
    ),
    Operation(
        method="POST",
        path="/api/restore/{vhost}/{queue}",
        handler=restore_queue,
        summary="Publish the backup in the body into a queue of this name.",
        group="backup",
        access=Access.ADMINISTRATOR,
        answer=RestoreResult,
    ),
)
