"""Restore the definitions of a broker from the log.

Nothing is written to the log meanwhile: the turn has no journal yet (`Broker.attach`). A table that
has lost its meaning, such as a binding whose queue is gone, is skipped.
"""

from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import EngineError
from leveret.wire.tables import Table


def apply_definition(broker: Broker, table: Table) -> None:
    """Make or delete the object that one table of the log defines."""
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
    try:
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
    except EngineError:
        return


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
    queue = vhost.declare_queue(
        _text(table, "name"),
        durable=True,
        auto_delete=_flag(table, "auto_delete"),
        arguments=_arguments(table),
    )
    _set_id(vhost, queue, _number(table, "id"))


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
