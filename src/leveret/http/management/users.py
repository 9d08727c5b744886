"""Users over HTTP, in the shapes of RabbitMQ's management API.

An administrator may do everything here; others see themselves. A password is hashed in a thread,
because that takes long on purpose.
"""

import asyncio
import json as plain_json
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
    read_hash,
    tags_of,
)
from leveret.auth.limits import MAX_CHANNELS, MAX_CONNECTIONS, USER_LIMIT
from leveret.auth.permissions import require_patterns
from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.http.framework.answers import json
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Needs, Operation, body_of
from leveret.http.framework.request_parts import facts_of, part_of, user_of

_GROUP: Final = "users"


class UserInfo(msgspec.Struct):
    """A user."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: list[str]
    limits: dict[str, int]


class Patterns(msgspec.Struct):
    """What a user may do in a vhost: regular expressions over names."""

    configure: str
    write: str
    read: str


class UserLimits(msgspec.Struct, rename="kebab", omit_defaults=True):
    """How much a user may have open."""

    max_connections: int | None = None
    max_channels: int | None = None


class UserBody(msgspec.Struct):
    """A user to make or change: with a password, with its hash, or with neither."""

    tags: str | list[str] | None = None  # a list, or a text with commas
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    administrator: bool | None = None  # instead of tags, as very old clients send it
    permissions: dict[str, Patterns] | None = None  # of a new user, by vhost
    limits: UserLimits | None = None


class Names(msgspec.Struct):
    """Users to delete."""

    users: list[str]


class WhoAmI(msgspec.Struct):
    """Who asks."""

    name: str
    tags: list[str]


class Hashed(msgspec.Struct):
    """The hash of a password."""

    ok: str


async def list_users(request: Request) -> Response:
    facts = facts_of(request)
    return json([_info(facts, account) for account in facts.directory.users.all()])


async def list_users_without_permissions(request: Request) -> Response:
    facts = facts_of(request)
    having = {row["user"] for row in facts.directory.permissions.export()}
    accounts = facts.directory.users.all()
    return json([_info(facts, account) for account in accounts if account.name not in having])


async def get_user(request: Request) -> Response:
    return json(_info(facts_of(request), seen_account(request)))


async def put_user(request: Request) -> Response:
    body = await body_of(request, UserBody)
    tags = _tags(body)
    password = await _password(body)
    facts = facts_of(request)
    name = part_of(request, "user")
    _require_grantable(facts, body)
    with facts.turn():
        is_new = facts.directory.users.put(name, password, tags)
        if body.limits is not None:
            _put_limits(facts, name, body.limits)
        if is_new and body.permissions is not None:
            for vhost, patterns in body.permissions.items():
                facts.directory.permissions.put(
                    vhost, name, patterns.configure, patterns.write, patterns.read
                )
    await facts.synced()
    return Response(status_code=201 if is_new else 204)


async def delete_user(request: Request) -> Response:
    facts = facts_of(request)
    with facts.turn():
        if not facts.directory.drop_user(part_of(request, "user")):
            raise NotFoundError("no such user")
    await facts.synced()
    return Response(status_code=204)


async def delete_users(request: Request) -> Response:
    names = (await body_of(request, Names)).users
    facts = facts_of(request)
    with facts.turn():
        for name in names:
            facts.directory.drop_user(name)
    await facts.synced()
    return Response(status_code=204)


async def get_whoami(request: Request) -> Response:
    user = user_of(request)
    return json(WhoAmI(user.name, list(user.tags)))


async def get_hashed_password(request: Request) -> Response:
    password = part_of(request, "password")
    return json(Hashed((await asyncio.to_thread(hash_password, password)).text))


def seen_account(request: Request) -> Account:
    """The user of the path: anybody for an administrator, for others themselves."""
    name = part_of(request, "user")
    asking = user_of(request)
    if ADMINISTRATOR not in asking.tags and asking.name != name:
        raise HTTPException(401, "User not authorised to see other users")
    account = facts_of(request).directory.users.get(name)
    if account is None:
        raise NotFoundError("no such user")
    return account


def _info(facts: NodeView, account: Account) -> UserInfo:
    limits = facts.broker.register.get(USER_LIMIT, account.name)
    return UserInfo(
        account.name,
        account.password.text,
        account.password.algorithm,
        list(account.tags),
        plain_json.loads(limits) if limits is not None else {},
    )


def _tags(body: UserBody) -> tuple[str, ...]:
    if body.tags is not None:
        return tags_of(body.tags)
    if body.administrator is None:
        raise PreconditionFailedError("tags_not_present")
    return (ADMINISTRATOR,) if body.administrator else ()


async def _password(body: UserBody) -> PasswordHash:
    """RabbitMQ: neither a password nor a hash takes the password away."""
    if body.password is not None and body.password_hash is not None:
        raise PreconditionFailedError("both_password_and_password_hash_are_provided")
    if body.password_hash is not None:
        return read_hash(body.password_hash, body.hashing_algorithm or "")
    if not body.password:
        return NO_PASSWORD
    return await asyncio.to_thread(hash_password, body.password)


def _require_grantable(facts: NodeView, body: UserBody) -> None:
    """Refuse permissions that cannot be given before anything is changed."""
    for vhost, patterns in (body.permissions or {}).items():
        if vhost not in facts.broker.vhosts:
            raise PreconditionFailedError("vhost_or_user_not_found")
        require_patterns((patterns.configure, patterns.write, patterns.read))


def _put_limits(facts: NodeView, name: str, limits: UserLimits) -> None:
    """Set the limits that are given; others stay as they are."""
    register = facts.broker.register
    kept = plain_json.loads(register.get(USER_LIMIT, name) or "{}")
    given = {MAX_CONNECTIONS: limits.max_connections, MAX_CHANNELS: limits.max_channels}
    kept.update({limit: n for limit, n in given.items() if n is not None})
    if kept:
        register.put(USER_LIMIT, name, plain_json.dumps(kept))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/whoami",
        handler=get_whoami,
        about="Who asks, and with which tags.",
        group=_GROUP,
        answer=WhoAmI,
    ),
    Operation(
        method="GET",
        path="/api/users",
        handler=list_users,
        about="All users.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        answer=list[UserInfo],
    ),
    Operation(
        method="GET",
        path="/api/users/without-permissions",
        handler=list_users_without_permissions,
        about="Users who may not enter any vhost.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        answer=list[UserInfo],
    ),
    Operation(
        method="POST",
        path="/api/users/bulk-delete",
        handler=delete_users,
        about="Delete several users; those that do not exist are passed over.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        body=Names,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/users/{user}",
        handler=get_user,
        about="One user: an administrator may ask for anybody, others for themselves.",
        group=_GROUP,
        answer=UserInfo,
    ),
    Operation(
        method="PUT",
        path="/api/users/{user}",
        handler=put_user,
        about="Make or change a user; without password and hash, nobody can log in by a password.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        body=UserBody,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/users/{user}",
        handler=delete_user,
        about="Delete a user with their permissions; their connections are closed.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/auth/hash_password/{password}",
        handler=get_hashed_password,
        about="The hash of a password, as `password_hash` of a user takes it.",
        group=_GROUP,
        needs=Needs.ADMINISTRATOR,
        answer=Hashed,
    ),
)
