"""Definitions are kept in the register, reach the engine, and are deleted with their vhost."""

import pytest

from leveret.definitions import Definitions
from leveret.definitions.checks import erlang_term, integer_fault, number_fault, object_faults
from leveret.engine.broker import Broker
from leveret.errors import NotFoundError, PreconditionFailedError

POLICY: dict[str, object] = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 0}


def definitions_of(broker: Broker) -> Definitions:
    return Definitions(broker, "hare", "4.3.0")


def again(definitions: Definitions) -> Definitions:
    """Return new definitions over the same register, as after a restart."""
    found = definitions_of(definitions.broker)
    found.load()
    return found


def test_what_is_kept_is_there_after_a_start() -> None:
    definitions = definitions_of(Broker(1))
    assert definitions.vhosts.put("v", {"default_queue_type": "quorum", "tracing": True})
    definitions.policies.put("v", "p", POLICY)
    definitions.vhost_limits.put("v", {"max-queues": 7})
    definitions.parameters.put_global("cluster_name", "hares")
    queue = definitions.broker.vhost("v").declare_queue("q", durable=True, arguments={})
    vhost = definitions.broker.vhost("v")
    vhost.default_kind, vhost.tracing, vhost.queues_max = "", False, -1
    found = again(definitions)
    assert (vhost.default_kind, vhost.tracing, vhost.queues_max) == ("quorum", True, 7)
    assert (queue.policy, queue.settings.max_length) == ("p", 5)
    assert list(found.policies.all()) == [("v", "p", {"apply-to": "all", **POLICY})]
    assert found.cluster_name == "hares"


def test_name_of_a_cluster_does_not_change_with_the_node_that_leads() -> None:
    broker = Broker(1)
    for node in ("first", "second"):
        definitions = Definitions(broker, node, "4.3.0")
        definitions.load()
        definitions.keep_cluster_name()
        assert definitions.cluster_name == "first"


def test_a_deleted_vhost_leaves_no_entry() -> None:
    definitions = definitions_of(Broker(1))
    definitions.vhosts.put("v", {"description": "d"})
    definitions.policies.put("v", "p", POLICY)
    definitions.operator_policies.put("v", "o", POLICY)
    definitions.vhost_limits.put("v", {"max-queues": 7})
    definitions.parameters.put("shovel", "v", "s", {"a": 1})
    definitions.broker.register.put("paused", '["v", "q"]', "{}")
    definitions.delete_vhost("v")
    register = definitions.broker.register
    assert [kind for kind in register.kinds() if register.entries(kind)] == []
    with pytest.raises(NotFoundError):
        definitions.delete_vhost("v")


def test_whoever_asks_is_told_of_parameters() -> None:
    definitions = definitions_of(Broker(1))
    told: list[tuple[str, str, str]] = []
    definitions.parameters.on_change.append(lambda *change: told.append(change))
    definitions.parameters.checks["shovel"] = lambda vhost, name, value: (
        ["no"] if name == "bad" else []
    )
    definitions.parameters.put("shovel", "/", "s", {})
    definitions.parameters.drop("shovel", "/", "s")
    with pytest.raises(PreconditionFailedError, match="Validation failed\n\nno\n"):
        definitions.parameters.put("shovel", "/", "bad", {})
    assert told == [("shovel", "/", "s")] * 2


def test_a_policy_in_a_vhost_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotFoundError):
        definitions_of(Broker(1)).policies.put("none", "p", POLICY)


def test_entries_say_all_that_is_wrong_in_rabbitmqs_order() -> None:
    known = {"a": number_fault, "b": integer_fault, "c": integer_fault}
    assert object_faults("x", {"a": "1", "b": True, "d": [1]}, known, ("c",)) == [
        'Unrecognised terms [{<<"d">>,[1]}] in x',
        'Key "c" not found in x',
        "b should be a number, actually was true",
        'a should be a number, actually was <<"1">>',
    ]
    assert object_faults("x", [], known) == []
    assert object_faults("x", "text", known) == ['x not a list <<"text">>']


def test_terms_of_any_json() -> None:
    assert erlang_term({"a": [None, 1 << 80]}) == f'#{{<<"a">> => [null,{1 << 80}]}}'
