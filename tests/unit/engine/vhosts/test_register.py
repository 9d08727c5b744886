"""Entries of the register: added, removed, written to the log, and restored from it."""

from leveret.engine.broker import Broker
from leveret.engine.checkpoint import checkpoint_records
from leveret.engine.restore import apply_definition
from leveret.engine.vhosts.definition_records import encode_entry, encode_entry_deletion
from leveret.journal.journal import Journal
from leveret.wire.tables import decode_table


def test_entries_are_kept_by_kind_and_key_in_order() -> None:
    register = Broker(1).register
    register.put("user", "b", "1")
    register.put("user", "a", "2")
    register.put("policy", "b", "3")
    register.put("user", "b", "4")
    assert list(register.entries("user").items()) == [("b", "4"), ("a", "2")]
    assert register.get("policy", "b") == "3"
    assert register.get("policy", "a") is None
    assert register.drop("user", "b")
    assert not register.drop("user", "b")
    assert register.entries("user") == {"a": "2"}


def test_every_change_is_written_once() -> None:
    broker = Broker(1)
    journal = Journal()
    broker.turn.journal = journal
    broker.register.put("user", "a", "1")
    written = journal.waiting_bytes()
    assert written > 0
    broker.register.put("user", "a", "1")
    assert not broker.register.drop("user", "unknown")
    assert journal.waiting_bytes() == written
    broker.register.drop("user", "a")
    assert journal.waiting_bytes() > written


def test_definitions_bring_entries_back() -> None:
    broker = Broker(1)
    for definition in (
        encode_entry("user", '["ü","/"]', "{}"),
        encode_entry("user", "gone", "1"),
        encode_entry_deletion("user", "gone"),
    ):
        apply_definition(broker, decode_table(definition, 4, len(definition)))
    assert broker.register.entries("user") == {'["ü","/"]': "{}"}
    records = b"".join(checkpoint_records(broker, 0))
    assert '["ü","/"]'.encode() in records
