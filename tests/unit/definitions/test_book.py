"""The book of a node: kept in the register, told to the engine, and forgotten with a vhost."""

import pytest

from leveret.definitions import Book
from leveret.definitions.checks import entries, integer, number, term
from leveret.engine.broker import Broker
from leveret.errors import NotFoundError, PreconditionFailedError

POLICY: dict[str, object] = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 0}


def book_of(broker: Broker) -> Book:
    return Book(broker, "hare", "4.3.0")


def again(book: Book) -> Book:
    """Another book over the same register, as after a start."""
    found = book_of(book.broker)
    found.load()
    return found


def test_what_is_kept_is_there_after_a_start() -> None:
    book = book_of(Broker(1))
    assert book.vhosts.put("v", {"default_queue_type": "quorum", "tracing": True})
    book.policies.put("v", "p", POLICY)
    book.vhost_limits.put("v", {"max-queues": 7})
    book.parameters.put_global("cluster_name", "hares")
    queue = book.broker.vhost("v").declare_queue("q", durable=True, arguments={})
    vhost = book.broker.vhost("v")
    vhost.default_kind, vhost.tracing, vhost.queues_max = "", False, -1
    found = again(book)
    assert (vhost.default_kind, vhost.tracing, vhost.queues_max) == ("quorum", True, 7)
    assert (queue.policy, queue.settings.max_length) == ("p", 5)
    assert list(found.policies.all()) == [("v", "p", {"apply-to": "all", **POLICY})]
    assert found.cluster_name == "hares"


def test_a_deleted_vhost_leaves_no_entry() -> None:
    book = book_of(Broker(1))
    book.vhosts.put("v", {"description": "d"})
    book.policies.put("v", "p", POLICY)
    book.operator_policies.put("v", "o", POLICY)
    book.vhost_limits.put("v", {"max-queues": 7})
    book.parameters.put("shovel", "v", "s", {"a": 1})
    book.broker.register.put("paused", '["v", "q"]', "{}")
    book.delete_vhost("v")
    register = book.broker.register
    assert [kind for kind in register.kinds() if register.entries(kind)] == []
    with pytest.raises(NotFoundError):
        book.delete_vhost("v")


def test_whoever_asks_is_told_of_parameters() -> None:
    book = book_of(Broker(1))
    told: list[tuple[str, str, str]] = []
    book.parameters.on_change.append(lambda *change: told.append(change))
    book.parameters.checks["shovel"] = lambda vhost, name, value: ["no"] if name == "bad" else []
    book.parameters.put("shovel", "/", "s", {})
    book.parameters.drop("shovel", "/", "s")
    with pytest.raises(PreconditionFailedError, match="Validation failed\n\nno\n"):
        book.parameters.put("shovel", "/", "bad", {})
    assert told == [("shovel", "/", "s")] * 2


def test_a_policy_in_a_vhost_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotFoundError):
        book_of(Broker(1)).policies.put("none", "p", POLICY)


def test_entries_say_all_that_is_wrong_in_rabbitmqs_order() -> None:
    known = {"a": number, "b": integer, "c": integer}
    assert entries("x", {"a": "1", "b": True, "d": [1]}, known, ("c",)) == [
        'Unrecognised terms [{<<"d">>,[1]}] in x',
        'Key "c" not found in x',
        "b should be a number, actually was true",
        'a should be a number, actually was <<"1">>',
    ]
    assert entries("x", [], known) == []
    assert entries("x", "text", known) == ['x not a list <<"text">>']


def test_terms_of_any_json() -> None:
    assert term({"a": [None, 1 << 80]}) == f'#{{<<"a">> => [null,{1 << 80}]}}'
