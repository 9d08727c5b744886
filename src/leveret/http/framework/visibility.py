"""What the user of a request may see and touch.

RabbitMQ: whoever has the tag `monitoring` sees every vhost and all connections; others see the
vhosts that they may open, and connections of their own. Seeing is not using: declaring, publishing
and the like need access to the vhost, and the permissions that AMQP would ask for.
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import User
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError, NotFoundError
from leveret.http.framework.login import facts_of, part_of, user_of

NO_VHOST_ACCESS = "User not authorised to access virtual host"


def sees_all(user: User) -> bool:
    return "administrator" in user.tags or "monitoring" in user.tags


def visible_vhosts(request: Request) -> list[Vhost]:
    """All vhosts that the user may see, by name."""
    user = user_of(request)
    vhosts = sorted(facts_of(request).broker.vhosts.items())
    return [vhost for name, vhost in vhosts if user.may_see(name)]


def seen_vhost(request: Request) -> Vhost:
    """The vhost of the path, for looking at it."""
    vhost = facts_of(request).broker.vhost(part_of(request, "vhost"))
    if not user_of(request).may_see(vhost.name):
        raise HTTPException(401, NO_VHOST_ACCESS)
    return vhost


def used_vhost(request: Request) -> Vhost:
    """The vhost of the path, for working in it."""
    vhost = facts_of(request).broker.vhost(part_of(request, "vhost"))
    if not user_of(request).may_open(vhost.name):
        raise HTTPException(401, NO_VHOST_ACCESS)
    return vhost


def listed_vhosts(request: Request) -> list[Vhost]:
    """The vhost of the path where it names one, else all that the user may see."""
    return [seen_vhost(request)] if "vhost" in request.path_params else visible_vhosts(request)


def require(request: Request, permission: str, vhost: Vhost, what: str, name: str) -> None:
    """Raise AccessRefusedError unless the user may do this to a queue or exchange."""
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
    """Raise AccessRefusedError unless the user may use a key with an exchange, if it is a topic."""
    user = user_of(request)
    if exchange.kind != "topic":
        return
    if not user.may_topic(permission, vhost.name, exchange.name, routing_key):
        raise AccessRefusedError(
            f"{permission} access to topic '{routing_key}' in exchange '{exchange.name}' "
            f"in vhost '{vhost.name}' refused for user '{user.name}'"
        )


def queue_in(vhost: Vhost, name: str) -> Queue:
    """A queue, exclusive or not; 404 where there is none."""
    found = vhost.queues.get(name)
    if found is None:
        raise NotFoundError(f"no queue '{name}' in vhost '{vhost.name}'")
    return found


def exchange_name(given: str) -> str:
    """RabbitMQ: paths name the default exchange `amq.default`."""
    return "" if given == "amq.default" else given


def exchange_in(vhost: Vhost, given: str) -> Exchange:
    return vhost.exchange(exchange_name(given))
