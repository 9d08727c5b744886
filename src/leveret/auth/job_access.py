"""The access of a call to the jobs service, from a token or from a user.

A token that an operator signed gives access to all topics of its namespaces. All other calls have
the permissions of a user, as they are at the time of the call. A namespace is a vhost and a topic
is a queue, so the permissions are those that AMQP asks for. Only an administrator may use a
namespace that does not exist yet, because the call may create it.
"""

from collections.abc import Container
from typing import Final

from leveret.auth.user import ADMINISTRATOR, User

ALL: Final = "*"


class JobAccess:
    """Decides which topics of which namespaces a call may use."""

    def __init__(
        self, namespaces: frozenset[str], user: User | None = None, subject: str = ""
    ) -> None:
        self.namespaces = namespaces  # namespaces of a token without a user; `ALL` stands for all
        self.user = user
        self.subject = subject  # subject of a token without a user

    @property
    def identity(self) -> str:
        """Return the name for the audit."""
        return self.user.identity if self.user is not None else f"jobs:{self.subject}"

    def namespace_refusal(self, namespace: str, vhosts: Container[str]) -> str:
        """Return why the call may not use a namespace; an empty text if it may."""
        user = self.user
        if user is None:
            if ALL in self.namespaces or namespace in self.namespaces:
                return ""
            return f"the token does not allow the namespace {namespace}"
        if user.may_open(namespace) if namespace in vhosts else ADMINISTRATOR in user.tags:
            return ""
        return f"access to vhost '{namespace}' refused for user '{user.name}'"

    def topic_refusal(
        self, permission: str, namespace: str, queue: str, vhosts: Container[str]
    ) -> str:
        """Return why the call lacks a permission on a queue; an empty text if it has it."""
        user = self.user
        if (
            user is None
            or namespace not in vhosts
            or user.may(permission, namespace, "queue", queue)
        ):
            return ""
        return (
            f"{permission} access to queue '{queue}' in vhost '{namespace}' "
            f"refused for user '{user.name}'"
        )
