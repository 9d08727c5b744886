"""Check which vhosts, queues and exchanges the user of a request may see and change.

RabbitMQ: a user with the tag `monitoring` sees every vhost and every connection. Other users see
the vhosts that they may open, and their own connections. To see is not to use: declaring,
publishing and the like need access to the vhost, and the permissions that AMQP would ask for.

Functions named `seen_`, `visible_` and `listed_` check that the user may look. Functions named
`used_`, `governed_`, `permitted_` and `require` check that the user may act.
"""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import CONFIGURE, READ, WRITE, User
from leveret.auth.user import ADMINISTRATOR
from leveret.definitions.parameters import OPERATOR
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError, NotFoundError
from leveret.http.framework.request_parts import node_of, part_of, user_of

# RabbitMQ: the texts of its management API.
NO_VHOST_ACCESS: Final = "User not authorised to access virtual host"
_REFUSED: Final = {
    READ: "User not authorised to read from the queue",
    CONFIGURE: "User not authorised to configure the queue",
}


def sees_all(user: User) -> bool:
    return "administrator" in user.tags or "monitoring" in user.tags


def is_administrator(request: Request) -> bool:
    return ADMINISTRATOR in user_of(request).tags


def visible_vhosts(request: Request) -> list[Vhost]:
    """Return all vhosts that the user may see, sorted by name."""
    user = user_of(request)
    vhosts = sorted(node_of(request).broker.vhosts.items())
    return [vhost for name, vhost in vhosts if user.may_see(name)]


def listed_vhosts(request: Request) -> list[Vhost]:
    """Return the vhost of the path if it names one, else all vhosts that the user may see."""
    return [seen_vhost(request)] if "vhost" in request.path_params else visible_vhosts(request)


def seen_vhost(request: Request) -> Vhost:
    """Return the vhost of the path. Answer 401 unless the user may see it."""
    vhost = node_of(request).broker.vhost(part_of(request, "vhost"))
    if not user_of(request).may_see(vhost.name):
        raise HTTPException(401, NO_VHOST_ACCESS)
    return vhost


def used_vhost(request: Request) -> Vhost:
    """Return the vhost of the path. Answer 401 unless the user may work in it."""
    vhost = node_of(request).broker.vhost(part_of(request, "vhost"))
    if not user_of(request).may_open(vhost.name):
        raise HTTPException(401, NO_VHOST_ACCESS)
    return vhost


def vhost_of(request: Request) -> str:
    """Return the name of the vhost of the path, whether it exists or not.

    Answer 401 unless the user may see it (GET, HEAD) or work in it (all other methods).
    """
    vhost = part_of(request, "vhost")
    user = user_of(request)
    may_enter = user.may_see if request.method in ("GET", "HEAD") else user.may_open
    if not may_enter(vhost):
        raise HTTPException(401, NO_VHOST_ACCESS)
    return vhost


def governed_vhost(request: Request) -> str:
    """Return the name of the vhost of the path. Answer 401 unless the user may define things in it.

    RabbitMQ: administrators need no permission for that.
    """
    vhost = part_of(request, "vhost")
    if not is_administrator(request) and not user_of(request).may_open(vhost):
        raise HTTPException(401, NO_VHOST_ACCESS)
    return vhost


def governed_vhosts(request: Request) -> set[str]:
    """Return the names of all vhosts that the user may define things in.

    The tag monitoring is not enough: the parameters of a vhost may hold passwords.
    """
    names = node_of(request).broker.vhosts
    if is_administrator(request):
        return set(names)
    return {name for name in names if user_of(request).may_open(name)}


def owner_name(user: User) -> str:
    """Return the owner of the shovels and upstreams that a user sets.

    They act with the permissions of a user of the directory. The permissions of a token end with
    the token, so only an administrator's token can set a shovel or an upstream.
    """
    if user.is_account:
        return user.name
    if "administrator" in user.tags:
        return OPERATOR
    raise HTTPException(400, "a token cannot own a shovel or an upstream: log in with a password")


def queue_of(request: Request) -> Queue:
    """Return the queue that the path names. Answer 404 if it does not exist."""
    vhost = node_of(request).broker.vhost(vhost_of(request))
    return queue_in(vhost, part_of(request, "name"))


def permitted_queue(request: Request, permission: str) -> Queue:
    """Return the queue that the path names. Answer 401 unless the user has the permission on it."""
    queue = queue_of(request)
    if not user_of(request).may(permission, queue.vhost, "queue", queue.name):
        raise HTTPException(401, _REFUSED[permission])
    return queue


def queue_in(vhost: Vhost, name: str) -> Queue:
    """Return a queue, exclusive or not. Raise NotFoundError if it does not exist."""
    found = vhost.queues.get(name)
    if found is None:
        raise NotFoundError(f"no queue '{name}' in vhost '{vhost.name}'")
    return found


def exchange_name(given: str) -> str:
    """RabbitMQ: paths name the default exchange `amq.default`."""
    return "" if given == "amq.default" else given


def exchange_in(vhost: Vhost, given: str) -> Exchange:
    return vhost.exchange(exchange_name(given))


def require(request: Request, permission: str, vhost: Vhost, what: str, name: str) -> None:
    """Raise AccessRefusedError unless the user has the permission on a queue or exchange."""
    user = user_of(request)
    shown = name if name or what != "exchange" else "amq.default"
    if not user.may(permission, vhost.name, what, shown):
        raise AccessRefusedError(
            f"{permission} access to {what} '{shown}' in vhost '{vhost.name}' "
            f"refused for user '{user.name}'"
        )


def require_topic(
    request: Request, permission: str, vhost: Vhost, exchange: Exchange, routing_key: str
) -> None:
    """Raise AccessRefusedError unless the user may use a routing key of a topic exchange.

    Exchanges of other types have no topic permissions.
    """
    user = user_of(request)
    if exchange.kind != "topic":
        return
    if not user.may_topic(permission, vhost.name, exchange.name, routing_key):
        raise AccessRefusedError(
            f"{permission} access to topic '{routing_key}' in exchange '{exchange.name}' "
            f"in vhost '{vhost.name}' refused for user '{user.name}'"
        )


def require_way_in(
    request: Request, vhost: Vhost, name: str, routing_key: str | None = None
) -> None:
    """Raise AccessRefusedError unless the user may lead messages to an exchange.

    Their key is `routing_key`, or any key. A way into a topic exchange must not reach keys with
    which the user may not publish to it.
    """
    require(request, WRITE, vhost, "exchange", name)
    exchange = vhost.exchanges.get(name)
    if exchange is None or exchange.kind != "topic":
        return
    user = user_of(request)
    if routing_key is not None:
        require_topic(request, WRITE, vhost, exchange, routing_key)
    elif not user.may_every_topic(WRITE, vhost.name, name):
        raise AccessRefusedError(
            f"write access to every topic in exchange '{name}' in vhost '{vhost.name}' "
            f"refused for user '{user.name}'"
        )
