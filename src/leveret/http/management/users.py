"""Users, in the form of RabbitMQ's management API.

An administrator may do everything here; other users see only themselves. Passwords are hashed in a
thread, because hashing is slow on purpose.
"""

import asyncio
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import (
    ADMINISTRATOR,
    NO_PASSWORD,
    Account,
    PasswordHash,
    hash_password,
    parse_tags,
    read_hash,
)
from leveret.auth.limits import MAX_CHANNELS, MAX_CONNECTIONS
from leveret.auth.permissions import require_patterns
from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import (
    BODY_BYTES_MAX,
    Access,
    Operation,
    body_of,
    require_current_user,
)
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response

_GROUP: Final = "users"


class UserInfo(msgspec.Struct):
    """A user."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: list[str]
    limits: dict[str, int]


class PermissionPatterns(msgspec.Struct):
    """Permissions of a user in a vhost: regular expressions over names."""

    configure: str
    write: str
    read: str


class UserLimitsBody(msgspec.Struct, rename="kebab", omit_defaults=True):
    """Limits of a user."""

    max_connections: int | None = None
    max_channels: int | None = None


class UserBody(msgspec.Struct):
    """A user to create or change: with a password, with its hash, or with neither."""

    tags: str | list[str] | None = None  # a list, or a text separated by commas
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    administrator: bool | None = None  # sent by very old clients instead of tags
    permissions: dict[str, PermissionPatterns] | None = None  # for a new user, by vhost
    limits: UserLimitsBody | None = None


class UserNames(msgspec.Struct):
    """Names of users to delete."""

    users: list[str]


class WhoAmI(msgspec.Struct):
    """The user who sent the request."""

    name: str
    tags: list[str]


class HashedPassword(msgspec.Struct):
    """The hash of a password."""

    ok: str


async def list_users(request: Request) -> Response:
    node = node_of(request)
    return json_response([_user_info(node, account) for account in node.directory.users.all()])


async def list_users_without_permissions(request: Request) -> Response:
    node = node_of(request)
    having = {row["user"] for row in node.directory.permissions.export()}
    accounts = node.directory.users.all()
    return json_response(
        [_user_info(node, account) for account in accounts if account.name not in having]
    )


async def get_user(request: Request) -> Response:
    return json_response(_user_info(node_of(request), seen_account(request)))


async def put_user(request: Request) -> Response:
    body = await body_of(request, UserBody)
    tags = _tags(body)
    password = await _password(body)
    await require_current_user(request)
    node = node_of(request)
    name = part_of(request, "user")
    _require_grantable(node, body)
    with node.turn():
        is_new = node.directory.users.put(name, password, tags)
        if body.password:
            node.directory.password_verifier.note_right(name, password, body.password)
        if body.limits is not None:
            _put_limits(node, name, body.limits)
        if is_new and body.permissions is not None:
            for vhost, patterns in body.permissions.items():
                node.directory.permissions.put(
                    vhost, name, patterns.configure, patterns.write, patterns.read
                )
    await node.synced()
    return Response(status_code=201 if is_new else 204)


async def delete_user(request: Request) -> Response:
    node = node_of(request)
    with node.turn():
        if not node.directory.drop_user(part_of(request, "user")):
            raise NotFoundError("no such user")
    await node.synced()
    return Response(status_code=204)


async def delete_users(request: Request) -> Response:
    names = (await body_of(request, UserNames)).users
    node = node_of(request)
    with node.turn():
        for name in names:
            node.directory.drop_user(name)
    await node.synced()
    return Response(status_code=204)


async def get_whoami(request: Request) -> Response:
    user = user_of(request)
    return json_response(WhoAmI(user.name, list(user.tags)))


async def get_hashed_password(request: Request) -> Response:
    password = part_of(request, "password")
    return json_response(HashedPassword((await asyncio.to_thread(hash_password, password)).text))


def seen_account(request: Request) -> Account:
    """Return the user of the path. Only administrators may see other users."""
    name = part_of(request, "user")
    user = user_of(request)
    if ADMINISTRATOR not in user.tags and user.identity != name:
        raise HTTPException(401, "User not authorised to see other users")
    account = node_of(request).directory.users.get(name)
    if account is None:
        raise NotFoundError("no such user")
    return account


def _user_info(node: NodeView, account: Account) -> UserInfo:
    return UserInfo(
        account.name,
        account.password.text,
        account.password.algorithm,
        list(account.tags),
        node.definitions.user_limits.get(account.name) or {},
    )


def _tags(body: UserBody) -> tuple[str, ...]:
    if body.tags is not None:
        return parse_tags(body.tags)
    if body.administrator is None:
        raise PreconditionFailedError("tags_not_present")
    return (ADMINISTRATOR,) if body.administrator else ()


async def _password(body: UserBody) -> PasswordHash:
    """Return the hash of the new password.

    RabbitMQ: a body without password and hash removes the password.
    """
    if body.password is not None and body.password_hash is not None:
        raise PreconditionFailedError("both_password_and_password_hash_are_provided")
    if body.password_hash is not None:
        return read_hash(body.password_hash, body.hashing_algorithm or "")
    if not body.password:
        return NO_PASSWORD
    return await asyncio.to_thread(hash_password, body.password)


def _require_grantable(node: NodeView, body: UserBody) -> None:
    """Raise if a permission cannot be given, before anything is changed."""
    for vhost, patterns in (body.permissions or {}).items():
        if vhost not in node.broker.vhosts:
            raise PreconditionFailedError("vhost_or_user_not_found")
        require_patterns((patterns.configure, patterns.write, patterns.read))


def _put_limits(node: NodeView, name: str, limits: UserLimitsBody) -> None:
    """Set the given limits; others are unchanged."""
    given = {MAX_CONNECTIONS: limits.max_connections, MAX_CHANNELS: limits.max_channels}
    for limit, number in given.items():
        if number is not None:
            node.definitions.user_limits.put_one(name, limit, number)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/whoami",
        handler=get_whoami,
        summary="Return the user who sent the request, with their tags.",
        group=_GROUP,
        answer=WhoAmI,
    ),
    Operation(
        method="GET",
        path="/api/users",
        handler=list_users,
        summary="List all users.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[UserInfo],
    ),
    Operation(
        method="GET",
        path="/api/users/without-permissions",
        handler=list_users_without_permissions,
        summary="List the users without access to any vhost.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=list[UserInfo],
    ),
    Operation(
        method="POST",
        path="/api/users/bulk-delete",
        handler=delete_users,
        summary="Delete several users; names that do not exist are ignored.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        body=UserNames,
        body_bytes_max=BODY_BYTES_MAX,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/users/{user}",
        handler=get_user,
        summary="Return one user. Only administrators see other users.",
        group=_GROUP,
        answer=UserInfo,
    ),
    Operation(
        method="PUT",
        path="/api/users/{user}",
        handler=put_user,
        summary="Create or change a user. Without password and hash, no password logs in.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        body=UserBody,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/users/{user}",
        handler=delete_user,
        summary="Delete a user and their permissions, and close their connections.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/auth/hash_password/{password}",
        handler=get_hashed_password,
        summary="Return the hash of a password, for `password_hash` of a user.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=HashedPassword,
    ),
)
