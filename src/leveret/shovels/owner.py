"""The owner of a link: the user who set it, with whose permissions it acts.

A link is a shovel or a federation link. Every check looks the user up again, so that a link loses
its access together with its user. `Parameters` keeps the names of owners beside the parameters.

    owner            the link acts
    a user's name    as that user, while the user exists
    ""               as the operator of the node, who may do everything: the parameter comes from
                     the file of `load_definitions`, or from an administrator with a token
    None             not at all: the user was deleted, or an older version kept no owner
"""

from collections.abc import Callable

from leveret.auth.user import ADMINISTRATOR, CONFIGURE, READ, WRITE, User
from leveret.engine.commands.content import Content
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.vhosts.names import require_not_reserved
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError
from leveret.wire.tables import Table

UserLookup = Callable[[str], User | None]


class Owner:
    """Checks the permissions of one link's owner. Each `require_` raises AccessRefusedError."""

    def __init__(self, name: str | None, find: UserLookup) -> None:
        self.name = name
        self._find = find

    def user(self) -> User:
        """Return the owner as a user. Raise AccessRefusedError if the user does not exist."""
        if self.name is None:
            raise AccessRefusedError(
                "nobody owns it: the user who set it was deleted, or an older version stored it;"
                " set it again"
            )
        if not self.name:
            return User("", (ADMINISTRATOR,))
        found = self._find(self.name)
        if found is None:
            raise AccessRefusedError(f"the user '{self.name}' who set it does not exist")
        return found

    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.user().tags

    def require(self, permission: str, vhost: str, what: str, name: str) -> None:
        """Require a permission on a queue or an exchange."""
        shown = name if name or what != "exchange" else "amq.default"
        if not self.user().may(permission, vhost, what, shown):
            raise AccessRefusedError(
                f"{permission} access to {what} '{shown}' in vhost '{vhost}' "
                f"refused for user '{self.name}'"
            )

    def require_topic(self, permission: str, vhost: str, exchange: Exchange, key: str) -> None:
        """Require the use of a routing key, if this is a topic exchange."""
        if exchange.kind != "topic":
            return
        if not self.user().may_topic(permission, vhost, exchange.name, key):
            raise AccessRefusedError(
                f"{permission} access to topic '{key}' in exchange '{exchange.name}' "
                f"in vhost '{vhost}' refused for user '{self.name}'"
            )

    def require_publish(self, vhost: str, exchange: Exchange, key: str) -> None:
        self.require(WRITE, vhost, "exchange", exchange.name)
        self.require_topic(WRITE, vhost, exchange, key)

    def require_extra_keys(self, vhost: str, exchange: Exchange, header: bytes) -> None:
        """Require the keys of the headers CC and BCC, if this is a topic exchange."""
        if exchange.kind == "topic":
            for key in Content(header).extra_keys or ():
                self.require_topic(WRITE, vhost, exchange, key)

    def require_bind(self, vhost: str, queue: str, exchange: Exchange, key: str) -> None:
        self.require(WRITE, vhost, "queue", queue)
        self.require(READ, vhost, "exchange", exchange.name)
        self.require_topic(READ, vhost, exchange, key)

    def require_declare(self, vhost: Vhost, name: str, arguments: Table) -> None:
        """Require the declaration of a new queue: the same permissions as over AMQP."""
        require_not_reserved("queue", name)
        self.require(CONFIGURE, vhost.name, "queue", name)
        exchange = _text(arguments, "x-dead-letter-exchange")
        if exchange is not None:
            self.require(READ, vhost.name, "queue", name)
            self._require_way_in(vhost, exchange, _text(arguments, "x-dead-letter-routing-key"))
        stream = _text(arguments, "x-remember")
        if stream is not None:
            self.require(CONFIGURE, vhost.name, "queue", stream)
            self.require(WRITE, vhost.name, "queue", stream)

    def _require_way_in(self, vhost: Vhost, name: str, key: str | None) -> None:
        """Require that dead letters may go to an exchange with this key, or with any key."""
        self.require(WRITE, vhost.name, "exchange", name)
        exchange = vhost.exchanges.get(name)
        if exchange is None or exchange.kind != "topic":
            return
        if key is not None:
            self.require_topic(WRITE, vhost.name, exchange, key)
        elif not self.user().may_every_topic(WRITE, vhost.name, name):
            raise AccessRefusedError(
                f"write access to every topic in exchange '{name}' in vhost '{vhost.name}' "
                f"refused for user '{self.name}'"
            )


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    return field.value if field is not None and isinstance(field.value, str) else None
