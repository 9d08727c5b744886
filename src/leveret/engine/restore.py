"""Restore the definitions of a broker from the log.

Nothing is written to the log meanwhile: the turn has no journal yet (`Broker.attach`). A table that
has lost its meaning, such as a binding whose queue is gone, is skipped.

A table that cannot be applied does not stop the start: the fault is noted, and the object is left
out. A queue is never left out because of an argument, since its messages would be lost with it. It
comes back without the arguments that this version refuses.
"""

from leveret.engine.arguments.queue_arguments import queue_settings
from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import NotFoundError
from leveret.wire.tables import Table


def apply_definition(broker: Broker, table: Table) -> None:
    """Make or delete the object that one table of the log defines. Note a fault in the turn."""
    try:
        _apply(broker, table)
    except NotFoundError:
        return  # the table names an object that was deleted later
    except Exception as fault:
        what = f"{_text(table, 'op')} '{_text(table, 'name')}' in vhost '{_text(table, 'vhost')}'"
        broker.turn.note_fault(f"restoring the definition {what}", fault)


def _apply(broker: Broker, table: Table) -> None:
    op = _text(table, "op")
    if op == "id":
        broker.slots.note_id(_number(table, "id"))
        return
    if op == "entry":
        broker.register.put(_text(table, "kind"), _text(table, "key"), _text(table, "value"))
        return
    if op == "entry-":
        broker.register.drop(_text(table, "kind"), _text(table, "key"))
        return
    name = _text(table, "vhost")
    vhost = broker.vhosts.get(name)
    if op == "vhost-":
        if vhost is not None:
            broker.delete_vhost(name)
        return
    if vhost is None:
        if op.endswith("-"):
            return  # deleted before, with its vhost
        vhost = broker.add_vhost(name)
    if op == "exchange":
        _exchange(vhost, table)
    elif op == "queue":
        _queue(vhost, table)
    elif op == "bind" or op == "bind-":
        _binding(vhost, table, op == "bind")
    elif op == "queue-":
        found = vhost.queues.get(_text(table, "name"))
        if found is not None:
            vhost.remove_queue(found)
    elif op == "exchange-":
        vhost.delete_exchange(_text(table, "name"))


def _exchange(vhost: Vhost, table: Table) -> None:
    name = _text(table, "name")
    made = vhost.declare_exchange(
        name,
        _text(table, "type"),
        durable=True,
        auto_delete=_flag(table, "auto_delete"),
        internal=_flag(table, "internal"),
        arguments=_arguments(table),
    )
    holding = vhost.holding.get(name)
    if holding is not None:
        _set_id(vhost, holding, _number(table, "id"))
    number = _number(table, "deduplication")
    if number != 0:
        made.deduplication_id = number
        vhost.slots.note_id(number)
        if made.deduplication is not None:
            made.deduplication.id = number


def _queue(vhost: Vhost, table: Table) -> None:
    name = _text(table, "name")
    auto_delete = _flag(table, "auto_delete")
    arguments = _arguments(table)
    try:
        queue = vhost.declare_queue(
            name, durable=True, auto_delete=auto_delete, arguments=arguments
        )
    except Exception as fault:
        if name in vhost.queues:
            raise
        kept = _valid_arguments(vhost, name, auto_delete, arguments)
        refused = ", ".join([key for key in arguments if key not in kept])
        vhost.turn.note_fault(f"restoring '{refused}' of queue '{name}'", fault)
        queue = vhost.declare_queue(name, durable=True, auto_delete=auto_delete, arguments=kept)
    _set_id(vhost, queue, _number(table, "id"))


def _valid_arguments(vhost: Vhost, name: str, auto_delete: bool, arguments: Table) -> Table:
    """Return the arguments that a queue can have together, the type of the queue first."""
    kept: Table = {}
    for key in sorted(arguments, key=_is_not_type):
        tried = {**kept, key: arguments[key]}
        if _is_valid(vhost, name, auto_delete, tried):
            kept = tried
    return kept


def _is_valid(vhost: Vhost, name: str, auto_delete: bool, arguments: Table) -> bool:
    try:
        queue_settings(name, vhost.name, True, False, auto_delete, arguments)
    except Exception:  # the caller has noted the fault
        return False
    return True


def _is_not_type(key: str) -> bool:
    return key != "x-queue-type"


def _set_id(vhost: Vhost, queue: Queue, number: int) -> None:
    queue.ledger.id = number
    if queue.deduplication is not None:
        queue.deduplication.id = number
    vhost.slots.note_id(number)


def _binding(vhost: Vhost, table: Table, is_made: bool) -> None:
    name = _text(table, "target")
    target: Target | None = vhost.exchanges.get(name)
    if _flag(table, "to_queue"):
        target = vhost.queues.get(name)
    if target is None:
        return
    key = _text(table, "routing_key")
    if is_made:
        vhost.bind(_text(table, "source"), target, key, _arguments(table))
    else:
        vhost.unbind(_text(table, "source"), target, key, _arguments(table))


def _text(table: Table, name: str) -> str:
    field = table.get(name)
    return field.value if field is not None and isinstance(field.value, str) else ""


def _number(table: Table, name: str) -> int:
    field = table.get(name)
    return field.value if field is not None and isinstance(field.value, int) else 0


def _flag(table: Table, name: str) -> bool:
    field = table.get(name)
    return field is not None and field.value is True


def _arguments(table: Table) -> Table:
    field = table.get("arguments")
    return field.value if field is not None and isinstance(field.value, dict) else {}
