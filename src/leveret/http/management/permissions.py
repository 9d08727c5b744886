"""Permissions and topic permissions, in the form of RabbitMQ's management API."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.http.framework.operations import Access, Operation, body_of
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.http.management.users import PermissionPatterns, seen_account

_GROUP: Final = "permissions"


class Permission(msgspec.Struct):
    """The permissions of a user in a vhost."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermission(msgspec.Struct):
    """The routing keys of a topic exchange that a user may use."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class TopicBody(msgspec.Struct):
    """Patterns of the routing keys that a user may publish to and bind with."""

    exchange: str
    write: str
    read: str


async def list_permissions(request: Request) -> Response:
    return json_response(_rows(request))


async def list_permissions_of_vhost(request: Request) -> Response:
    vhost = _vhost(request)
    return json_response([row for row in _rows(request) if row["vhost"] == vhost])


async def list_permissions_of_user(request: Request) -> Response:
    user = seen_account(request).name
    return json_response([row for row in _rows(request) if row["user"] == user])


async def get_permission(request: Request) -> Response:
    vhost, user = part_of(request, "vhost"), part_of(request, "user")
    patterns = node_of(request).directory.permissions.get(vhost, user)
    if patterns is None:
        raise NotFoundError("no such permission")
    return json_response({"user": user, "vhost": vhost, **patterns})


async def put_permission(request: Request) -> Response:
    vhost, user = _existing(request)
    body = await body_of(request, PermissionPatterns)
    node = node_of(request)
    with node.turn():
        is_new = node.directory.permissions.put(vhost, user, body.configure, body.write, body.read)
    await node.synced()
    return Response(status_code=201 if is_new else 204)


async def delete_permission(request: Request) -> Response:
    node = node_of(request)
    with node.turn():
        permissions = node.directory.permissions
        if not permissions.drop(part_of(request, "vhost"), part_of(request, "user")):
            raise NotFoundError("no such permission")
    await node.synced()
    return Response(status_code=204)


async def list_topic_permissions(request: Request) -> Response:
    return json_response(_topic_rows(request))


async def list_topic_permissions_of_vhost(request: Request) -> Response:
    vhost = _vhost(request)
    return json_response([row for row in _topic_rows(request) if row["vhost"] == vhost])


async def list_topic_permissions_of_user(request: Request) -> Response:
    user = seen_account(request).name
    return json_response([row for row in _topic_rows(request) if row["user"] == user])


async def get_topic_permissions(request: Request) -> Response:
    vhost, user = part_of(request, "vhost"), part_of(request, "user")
    exchange = _exchange(request)
    found = [
        row
        for row in _topic_rows(request)
        if (row["vhost"], row["user"]) == (vhost, user) and exchange in (None, row["exchange"])
    ]
    if not found:
        raise NotFoundError("no such topic permission")
    return json_response(found)


async def put_topic_permission(request: Request) -> Response:
    vhost, user = _existing(request)
    body = await body_of(request, TopicBody)
    node = node_of(request)
    with node.turn():
        is_new = node.directory.permissions.put_topic(
            vhost, user, body.exchange, body.write, body.read
        )
    await node.synced()
    return Response(status_code=201 if is_new else 204)


async def delete_topic_permissions(request: Request) -> Response:
    vhost, user = part_of(request, "vhost"), part_of(request, "user")
    node = node_of(request)
    with node.turn():
        if not node.directory.permissions.drop_topic(vhost, user, _exchange(request)):
            raise NotFoundError("no such topic permission")
    await node.synced()
    return Response(status_code=204)


def _rows(request: Request) -> list[dict[str, str]]:
    return node_of(request).directory.permissions.export()


def _topic_rows(request: Request) -> list[dict[str, str]]:
    return node_of(request).directory.permissions.export_topics()


def _vhost(request: Request) -> str:
    return node_of(request).broker.vhost(part_of(request, "vhost")).name


def _exchange(request: Request) -> str | None:
    return part_of(request, "exchange") if "exchange" in request.path_params else None


def _existing(request: Request) -> tuple[str, str]:
    """Return vhost and user of the path. Raise PreconditionFailedError if one does not exist."""
    node = node_of(request)
    vhost, user = part_of(request, "vhost"), part_of(request, "user")
    if vhost not in node.broker.vhosts or node.directory.users.get(user) is None:
        raise PreconditionFailedError("vhost_or_user_not_found")
    return vhost, user


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/permissions",
        handler=list_permissions,
        summary="List the permissions of all users.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[Permission],
    ),
    Operation(
        method="GET",
        path="/api/permissions/{vhost}/{user}",
        handler=get_permission,
        summary="Return the permissions of a user in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=Permission,
    ),
    Operation(
        method="PUT",
        path="/api/permissions/{vhost}/{user}",
        handler=put_permission,
        summary="Set what a user may configure, write to and read from in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        body=PermissionPatterns,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/permissions/{vhost}/{user}",
        handler=delete_permission,
        summary="Remove all permissions of a user in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/users/{user}/permissions",
        handler=list_permissions_of_user,
        summary="List the permissions of a user. Only administrators see other users.",
        group=_GROUP,
        answer=list[Permission],
    ),
    Operation(
        method="GET",
        path="/api/vhosts/{vhost}/permissions",
        handler=list_permissions_of_vhost,
        summary="List the permissions of all users in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[Permission],
    ),
    Operation(
        method="GET",
        path="/api/topic-permissions",
        handler=list_topic_permissions,
        summary="List the routing keys of topic exchanges that users may use.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[TopicPermission],
    ),
    Operation(
        method="GET",
        path="/api/topic-permissions/{vhost}/{user}",
        handler=get_topic_permissions,
        summary="List the routing keys that a user may use in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[TopicPermission],
    ),
    Operation(
        method="PUT",
        path="/api/topic-permissions/{vhost}/{user}",
        handler=put_topic_permission,
        summary="Set the routing keys of a topic exchange that a user may use.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        body=TopicBody,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/topic-permissions/{vhost}/{user}",
        handler=delete_topic_permissions,
        summary="Remove all restrictions on routing keys of a user in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/topic-permissions/{vhost}/{user}/{exchange}",
        handler=get_topic_permissions,
        summary="List the routing keys of a topic exchange that a user may use.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[TopicPermission],
    ),
    Operation(
        method="DELETE",
        path="/api/topic-permissions/{vhost}/{user}/{exchange}",
        handler=delete_topic_permissions,
        summary="Remove the restriction on routing keys of a topic exchange.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/users/{user}/topic-permissions",
        handler=list_topic_permissions_of_user,
        summary="List the routing keys that a user may use. Only administrators see other users.",
        group=_GROUP,
        answer=list[TopicPermission],
    ),
    Operation(
        method="GET",
        path="/api/vhosts/{vhost}/topic-permissions",
        handler=list_topic_permissions_of_vhost,
        summary="List the routing keys that users may use in a vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[TopicPermission],
    ),
)
