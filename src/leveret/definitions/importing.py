"""Import a document of definitions, from RabbitMQ or from Leveret.

An import deletes nothing. Existing queues, exchanges and bindings stay as they are; users,
permissions, policies, parameters and vhosts take the values of the document. `check` first checks
every row and changes nothing; `steps` then carries out every row. Both are iterators with one step
per row, so that the caller can run them in slices.

RabbitMQ: exchanges and queues whose names begin with `amq.` are skipped. Bindings are skipped if
one end exists neither in the broker nor in the document, for example an exclusive queue.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from leveret.auth import UserDirectory
from leveret.auth.hashes import PasswordHash, hash_password, read_hash
from leveret.auth.users import parse_tags, require_valid
from leveret.definitions import checks
from leveret.definitions.definitions import Definitions
from leveret.definitions.limits import MAX_QUEUES
from leveret.definitions.object_checker import ObjectChecker
from leveret.definitions.object_importer import put_binding, put_exchange, put_queue
from leveret.definitions.parameters import VHOST_LIMITS, require_global, require_settable
from leveret.definitions.rows import Document, Row, maybe_text, text
from leveret.definitions.vhosts import checked_metadata, require_name
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import EngineError, PreconditionFailedError
from leveret.patterns import Pattern

ORDER: Final = (
    "users",
    "vhosts",
    "permissions",
    "exchanges",
    "topic_permissions",
    "global_parameters",
    "policies",
    "parameters",
    "queues",
    "bindings",
)
# The lists that a document of one vhost can have.
OF_VHOST: Final = ("exchanges", "policies", "parameters", "queues", "bindings")
_METADATA: Final = ("description", "tags", "default_queue_type", "protected_from_deletion")

Handler = Callable[[Row], None]


class Importer:
    """Imports one document, into one vhost if that is given."""

    def __init__(
        self,
        definitions: Definitions,
        directory: UserDirectory,
        document: object,
        vhost: str | None = None,
        *,
        owner: str,
    ) -> None:
        """Raises PreconditionFailedError if the document does not have the right form.

        `owner` owns the parameters whose rows name no owner; exports of RabbitMQ name none.
        """
        self._definitions = definitions
        self._directory = directory
        self._owner = owner
        categories = ORDER if vhost is None else OF_VHOST
        self._document = Document(document, categories, vhost)
        self._users = {text(row, "name") for row in self._document.rows("users")}
        self._hashes: dict[str, PasswordHash] = {}  # by user, for users with plain passwords

    def hash_passwords(self) -> None:
        """Hash the plain passwords of the document. This is slow, and may run in a thread."""
        for row in self._document.rows("users"):
            password = maybe_text(row, "password")
            if password:
                self._hashes[text(row, "name")] = hash_password(password)

    def check(self) -> Iterator[None]:
        """Check every row. Raises PreconditionFailedError for the first bad row."""
        checker = ObjectChecker(self._definitions.broker)
        handlers: dict[str, Handler] = {
            "users": self._check_user,
            "vhosts": partial(self._check_vhost, checker),
            "permissions": self._check_permission,
            "exchanges": partial(self._check_object, checker.check_exchange),
            "topic_permissions": self._check_topic_permission,
            "global_parameters": self._check_global,
            "policies": self._check_policy,
            "parameters": self._check_parameter,
            "queues": partial(self._check_object, checker.check_queue),
            "bindings": partial(self._check_object, checker.check_binding),
        }
        yield from self._each_entry(handlers)
        yield from self._document.require_distinct()
        checker.require_room(self._queue_limits())

    def steps(self) -> Iterator[None]:
        """Carry out every row. Run the steps inside turns of the engine."""
        handlers: dict[str, Handler] = {
            "users": self._put_user,
            "vhosts": self._put_vhost,
            "permissions": self._put_permission,
            "exchanges": partial(self._put_object, put_exchange),
            "topic_permissions": self._put_topic_permission,
            "global_parameters": self._put_global,
            "policies": self._put_policy,
            "parameters": self._put_parameter,
            "queues": partial(self._put_object, put_queue),
            "bindings": partial(self._put_object, put_binding),
        }
        yield from self._each_entry(handlers)

    def _each_entry(self, handlers: dict[str, Handler]) -> Iterator[None]:
        for category in ORDER:
            for row in self._document.rows(category):
                handlers[category](row)
                yield

    def _check_user(self, row: Row) -> None:
        if "tags" not in row:
            raise PreconditionFailedError("tags_not_present")
        require_valid(text(row, "name"), _tags(row))
        self._hash_of(row)
        limits = row.get("limits") or {}
        faults = self._definitions.user_limits.faults(limits)
        if faults:
            raise PreconditionFailedError(faults[0])

    def _hash_of(self, row: Row) -> PasswordHash:
        found = self._hashes.get(text(row, "name"))
        if found is not None:
            return found
        return read_hash(
            maybe_text(row, "password_hash") or "", maybe_text(row, "hashing_algorithm") or ""
        )

    def _put_user(self, row: Row) -> None:
        name = text(row, "name")
        self._directory.users.put(name, self._hash_of(row), _tags(row))
        limits = row.get("limits")
        if limits:
            self._definitions.user_limits.put(name, limits)

    def _require_user(self, row: Row) -> str:
        name = text(row, "user")
        if name not in self._users and self._directory.users.get(name) is None:
            raise PreconditionFailedError(f"no_such_user: {name}")
        return name

    def _check_permission(self, row: Row) -> None:
        self._require_user(row)
        self._document.vhost_of(row, self._definitions)
        for name in ("configure", "write", "read"):
            Pattern(text(row, name))

    def _put_permission(self, row: Row) -> None:
        self._directory.permissions.put(
            text(row, "vhost"),
            text(row, "user"),
            text(row, "configure"),
            text(row, "write"),
            text(row, "read"),
        )

    def _check_topic_permission(self, row: Row) -> None:
        self._require_user(row)
        self._document.vhost_of(row, self._definitions)
        text(row, "exchange")
        for name in ("write", "read"):
            Pattern(text(row, name))

    def _put_topic_permission(self, row: Row) -> None:
        self._directory.permissions.put_topic(
            text(row, "vhost"),
            text(row, "user"),
            text(row, "exchange"),
            text(row, "write"),
            text(row, "read"),
        )

    def _check_object(self, check: Callable[[str, Row], None], row: Row) -> None:
        try:
            check(self._document.vhost_of(row, self._definitions), row)
        except EngineError as fault:
            raise PreconditionFailedError(str(fault)) from None

    def _put_object(self, put: Callable[[Vhost, Row], None], row: Row) -> None:
        vhost = self._document.vhost_of(row, self._definitions)
        put(self._definitions.broker.vhost(vhost), row)

    def _check_vhost(self, checker: ObjectChecker, row: Row) -> None:
        name = text(row, "name")
        require_name(name)
        kind = checked_metadata(_metadata(row)).get("default_queue_type")
        if kind:
            checker.default_kinds[name] = str(kind)

    def _put_vhost(self, row: Row) -> None:
        self._definitions.vhosts.put(text(row, "name"), _metadata(row))

    def _check_global(self, row: Row) -> None:
        require_global(text(row, "name"), row.get("value"))

    def _put_global(self, row: Row) -> None:
        self._definitions.parameters.put_global(text(row, "name"), row.get("value"))

    def _check_policy(self, row: Row) -> None:
        vhost = self._document.vhost_of(row, self._definitions)
        name = text(row, "name")
        where = f' (vhost: "{vhost}" key: "{name}")'
        _require(
            partial(
                checks.require_no_faults, self._definitions.policies.faults(name, _policy(row))
            ),
            where,
        )

    def _put_policy(self, row: Row) -> None:
        vhost = self._document.vhost_of(row, self._definitions)
        self._definitions.policies.put(vhost, text(row, "name"), _policy(row))

    def _check_parameter(self, row: Row) -> None:
        component, vhost, name = self._parameter(row)
        where = f' (vhost: "{vhost}" / component: "{component}" / key: "{name}")'
        faults = self._definitions.parameters.faults(component, vhost, name, row.get("value"))
        self._owner_of(row)
        _require(partial(require_settable, component), where)
        _require(partial(checks.require_no_faults, faults), where)

    def _put_parameter(self, row: Row) -> None:
        owner = self._owner_of(row)
        self._definitions.parameters.put(*self._parameter(row), row.get("value"), owner)

    def _owner_of(self, row: Row) -> str | None:
        """Return the owner that a row names. A row that names nobody must not gain an owner."""
        if "owner" not in row:
            return self._owner
        return maybe_text(row, "owner") or None

    def _parameter(self, row: Row) -> tuple[str, str, str]:
        return (
            text(row, "component"),
            self._document.vhost_of(row, self._definitions),
            text(row, "name"),
        )

    def _queue_limits(self) -> dict[str, object]:
        """Return the limits on queues that the document sets, by vhost."""
        limits: dict[str, object] = {}
        for row in self._document.rows("parameters"):
            component, vhost, _ = self._parameter(row)
            values = row.get("value")
            if component == VHOST_LIMITS and isinstance(values, dict):
                limits[vhost] = values.get(MAX_QUEUES, -1)
        return limits


def _require(check: Callable[[], None], where: str) -> None:
    """Run a check, and add the place to the text of its error."""
    try:
        check()
    except PreconditionFailedError as fault:
        raise PreconditionFailedError(f"{fault}{where}") from None


def _metadata(row: Row) -> dict[str, object]:
    """Read the metadata of a vhost. RabbitMQ has them under `metadata`, beside it, or both."""
    fields: dict[str, object] = {}
    inner = row.get("metadata")
    for source in (inner if isinstance(inner, dict) else {}, row):
        fields |= {key: source[key] for key in _METADATA if key in source}
    if "tracing" in row:
        fields["tracing"] = row["tracing"]
    return fields


def _policy(row: Row) -> dict[str, object]:
    return {
        "pattern": row.get("pattern"),
        "apply-to": row.get("apply-to", "all"),
        "definition": row.get("definition"),
        "priority": row.get("priority", 0),
    }


def _tags(row: Row) -> tuple[str, ...]:
    tags = row["tags"]
    if isinstance(tags, str):
        return parse_tags(tags)
    if not isinstance(tags, list):
        raise PreconditionFailedError("tags must be a list or a text")
    return parse_tags(str(tag) for tag in tags)
