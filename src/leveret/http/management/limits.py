"""Limits of vhosts and of users."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.http.framework.bodies import change_response, object_of, require_keys, vhost_not_found
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import vhost_of, visible_vhosts
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response

_MAY_SEE_OTHERS: Final = {"administrator", "monitoring"}


class VhostLimits(msgspec.Struct):
    """The limits of one vhost."""

    vhost: str
    value: dict[str, int]


class UserLimits(msgspec.Struct):
    """The limits of one user."""

    user: str
    value: dict[str, int]


class LimitBody(msgspec.Struct):
    """A limit; a negative value removes it."""

    value: int


async def list_vhost_limits(request: Request) -> Response:
    visible = {vhost.name for vhost in visible_vhosts(request)}
    found = node_of(request).definitions.vhost_limits.all()
    return json_response(
        [VhostLimits(vhost, values) for vhost, values in found if vhost in visible]
    )


async def get_vhost_limits(request: Request) -> Response:
    node = node_of(request)
    vhost = vhost_of(request)
    node.broker.vhost(vhost)
    values = node.definitions.vhost_limits.get(vhost)
    return json_response([VhostLimits(vhost, values)] if values is not None else [])


async def put_vhost_limit(request: Request) -> Response:
    node = node_of(request)
    vhost = part_of(request, "vhost")
    if vhost not in node.broker.vhosts:
        return vhost_not_found()
    body = await object_of(request)
    require_keys(body, "value")
    with node.turn():
        node.definitions.vhost_limits.put_one(vhost, part_of(request, "name"), body["value"])
    await node.synced()
    return change_response()


async def delete_vhost_limit(request: Request) -> Response:
    node = node_of(request)
    vhost = part_of(request, "vhost")
    if vhost not in node.broker.vhosts:
        return vhost_not_found()
    with node.turn():
        node.definitions.vhost_limits.drop_one(vhost, part_of(request, "name"))
    await node.synced()
    return change_response()


async def list_user_limits(request: Request) -> Response:
    found = node_of(request).definitions.user_limits.all()
    return json_response([UserLimits(user, values) for user, values in found])


async def get_user_limits(request: Request) -> Response:
    node = node_of(request)
    name = part_of(request, "user")
    user = user_of(request)
    if user.identity != name and not _MAY_SEE_OTHERS.intersection(user.tags):
        raise HTTPException(401, "User not authorised to see the limits of others")
    if node.directory.users.get(name) is None:
        raise NotFoundError("no such user")
    values = node.definitions.user_limits.get(name)
    return json_response([UserLimits(name, values)] if values is not None else [])


async def put_user_limit(request: Request) -> Response:
    node = node_of(request)
    name = part_of(request, "user")
    body = await object_of(request)
    require_keys(body, "value")
    if node.directory.users.get(name) is None:
        raise PreconditionFailedError(f"no_such_user: {name}")
    with node.turn():
        node.definitions.user_limits.put_one(name, part_of(request, "name"), body["value"])
    await node.synced()
    return change_response()


async def delete_user_limit(request: Request) -> Response:
    node = node_of(request)
    name = part_of(request, "user")
    if node.directory.users.get(name) is None:
        raise NotFoundError("no such user")
    with node.turn():
        node.definitions.user_limits.drop_one(name, part_of(request, "name"))
    await node.synced()
    return change_response()


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/vhost-limits",
        handler=list_vhost_limits,
        summary="List the limits of all vhosts that the user may see.",
        group="limits",
        answer=list[VhostLimits],
    ),
    Operation(
        method="GET",
        path="/api/vhost-limits/{vhost}",
        handler=get_vhost_limits,
        summary="Return the limits of a vhost.",
        group="limits",
        answer=list[VhostLimits],
    ),
    Operation(
        method="PUT",
        path="/api/vhost-limits/{vhost}/{name}",
        handler=put_vhost_limit,
        summary="Set max-queues or max-connections of a vhost.",
        group="limits",
        access=Access.ADMINISTRATOR,
        body=LimitBody,
        status=204,
    ),
    Operation(
        method="DELETE",
        path="/api/vhost-limits/{vhost}/{name}",
        handler=delete_vhost_limit,
        summary="Remove a limit of a vhost.",
        group="limits",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/user-limits",
        handler=list_user_limits,
        summary="List the limits of all users.",
        group="limits",
        access=Access.ADMINISTRATOR,
        answer=list[UserLimits],
    ),
    Operation(
        method="GET",
        path="/api/user-limits/{user}",
        handler=get_user_limits,
        summary="Return the limits of a user.",
        group="limits",
        answer=list[UserLimits],
    ),
    Operation(
        method="PUT",
        path="/api/user-limits/{user}/{name}",
        handler=put_user_limit,
        summary="Set max-connections or max-channels of a user.",
        group="limits",
        access=Access.ADMINISTRATOR,
        body=LimitBody,
        status=204,
    ),
    Operation(
        method="DELETE",
        path="/api/user-limits/{user}/{name}",
        handler=delete_user_limit,
        summary="Remove a limit of a user.",
        group="limits",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
)
