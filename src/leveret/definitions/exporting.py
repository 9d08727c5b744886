"""Export all definitions as one document with RabbitMQ's keys.

`document_head` returns the fields that describe the document. `categories` returns its lists, each
as an iterator, so that the caller can write the document in slices. Rows are sorted: the same
definitions give the same document. The document leaves out exclusive queues, the predeclared
exchanges, and the bindings of the default exchange.

The row of a vhost has metadata only if some were set, as in exports of RabbitMQ 3.x and 4.x.
"""

from collections.abc import Iterator
from typing import Final

from leveret import __version__
from leveret.auth import UserDirectory
from leveret.definitions.definitions import Definitions
from leveret.definitions.parameters import OPERATOR, OWNED
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.vhost import Vhost
from leveret.wire.tables import plain_table

PRODUCT: Final = "Leveret"
METADATA: Final = ("description", "tags", "default_queue_type")

Row = dict[str, object]


def document_head(definitions: Definitions, vhost: str | None = None) -> Row:
    """Return the fields of the document that describe it."""
    fields: Row = {
        "rabbit_version": definitions.rabbit_version,
        "rabbitmq_version": definitions.rabbit_version,
        "product_name": PRODUCT,
        "product_version": __version__,
    }
    if vhost is None:
        fields["rabbitmq_definition_format"] = "cluster"
        fields["original_cluster_name"] = definitions.cluster_name
        fields["explanation"] = f"Definitions of cluster '{definitions.cluster_name}'"
        return fields
    fields["rabbitmq_definition_format"] = "single_virtual_host"
    fields["original_vhost_name"] = vhost
    fields["explanation"] = f"Definitions of virtual host '{vhost}'"
    metadata = definitions.vhosts.metadata(vhost)
    if metadata:
        fields["metadata"] = {key: metadata[key] for key in METADATA if key in metadata}
    return fields


def categories(
    definitions: Definitions, directory: UserDirectory
) -> list[tuple[str, Iterator[Row]]]:
    """Return the lists of the whole node, in RabbitMQ's order."""
    vhosts = [vhost for _, vhost in sorted(definitions.broker.vhosts.items())]
    return [
        ("users", users(definitions, directory)),
        ("vhosts", iter([vhost_row(definitions, vhost.name) for vhost in vhosts])),
        ("permissions", iter([dict(row) for row in directory.permissions.export()])),
        ("topic_permissions", iter([dict(row) for row in directory.permissions.export_topics()])),
        ("parameters", owned_parameters(definitions)),
        ("global_parameters", iter(global_parameters(definitions))),
        ("policies", policies(definitions)),
        ("queues", (row for vhost in vhosts for row in queues(vhost))),
        ("exchanges", (row for vhost in vhosts for row in exchanges(vhost))),
        ("bindings", (row for vhost in vhosts for row in bindings(vhost))),
    ]


def categories_of(definitions: Definitions, vhost: Vhost) -> list[tuple[str, Iterator[Row]]]:
    """Return the lists of one vhost; their rows have no field `vhost`."""
    found = [
        ("parameters", owned_parameters(definitions, vhost.name)),
        ("policies", policies(definitions, vhost.name)),
        ("queues", queues(vhost)),
        ("exchanges", exchanges(vhost)),
        ("bindings", bindings(vhost)),
    ]
    return [(name, _without_vhost(rows)) for name, rows in found]


def _without_vhost(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        del row["vhost"]
        yield row


def users(definitions: Definitions, directory: UserDirectory) -> Iterator[Row]:
    for account in directory.users.all():
        yield {
            "name": account.name,
            "password_hash": account.password.text,
            "hashing_algorithm": account.password.algorithm,
            "tags": list(account.tags),
            "limits": definitions.user_limits.get(account.name) or {},
        }


def vhost_row(definitions: Definitions, name: str) -> Row:
    metadata = definitions.vhosts.metadata(name)
    row: Row = {"name": name}
    if metadata:
        known: Row = {key: metadata[key] for key in METADATA if key in metadata}
        row |= {**known, "metadata": known}
        if "tracing" in metadata:
            row["tracing"] = metadata["tracing"]
        if metadata.get("protected_from_deletion"):
            row["metadata"] = {**known, "protected_from_deletion": True}
    return row


def parameters(definitions: Definitions, vhost: str | None = None) -> Iterator[Row]:
    for component, of_vhost, name, value in definitions.parameters.all(vhost=vhost):
        yield {"value": value, "vhost": of_vhost, "component": component, "name": name}


def owned_parameters(definitions: Definitions, vhost: str | None = None) -> Iterator[Row]:
    """Return the parameters; a row of an owned component names its owner, or null for nobody.

    Without it, the administrator who imports the document would own the links of all users.
    """
    for row in parameters(definitions, vhost):
        component, of_vhost, name = str(row["component"]), str(row["vhost"]), str(row["name"])
        owner = definitions.parameters.owner(component, of_vhost, name)
        if component in OWNED and owner != OPERATOR:
            row["owner"] = owner
        yield row


def global_parameters(definitions: Definitions) -> list[Row]:
    return [{"name": name, "value": value} for name, value in definitions.parameters.globals()]


def policies(definitions: Definitions, vhost: str | None = None) -> Iterator[Row]:
    for of_vhost, name, value in definitions.policies.all(vhost):
        yield policy_row(of_vhost, name, value)


def policy_row(vhost: str, name: str, value: Row) -> Row:
    return {
        "vhost": vhost,
        "name": name,
        "pattern": value["pattern"],
        "apply-to": value["apply-to"],
        "definition": value["definition"],
        "priority": value["priority"],
    }


def queues(vhost: Vhost) -> Iterator[Row]:
    for name in sorted(vhost.queues):
        queue = vhost.queues.get(name)
        if queue is not None and queue.owner is None:
            yield {
                "name": printable(name),
                "vhost": vhost.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": plain_table(queue.arguments),
            }


def exchanges(vhost: Vhost) -> Iterator[Row]:
    for name in sorted(vhost.exchanges):
        exchange = vhost.exchanges.get(name)
        if exchange is None or not name or name.startswith("amq."):
            continue
        yield {
            "name": printable(name),
            "vhost": vhost.name,
            "type": exchange.kind,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": plain_table(exchange.arguments),
        }


def bindings(vhost: Vhost) -> Iterator[Row]:
    for name in sorted(vhost.exchanges):
        exchange = vhost.exchanges.get(name)
        if exchange is None or not name:
            continue
        found = [
            (binding.target.name, not binding.is_queue, binding.routing_key, binding)
            for binding in exchange.bindings.values()
            if not (isinstance(binding.target, Queue) and binding.target.owner is not None)
        ]
        for target, is_exchange, routing_key, binding in sorted(found, key=lambda row: row[:3]):
            yield {
                "source": printable(name),
                "vhost": vhost.name,
                "destination": printable(target),
                "destination_type": "exchange" if is_exchange else "queue",
                "routing_key": printable(routing_key),
                "arguments": plain_table(binding.arguments),
            }


def printable(text: str) -> str:
    """Return a name with U+FFFD for bytes that are not UTF-8, which AMQP allows in names."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
