"""Names and binding keys of the queues."""

from leveret.perf.load import Load
from leveret.perf.topology import binding_keys, queue_names, queues_for_worker


def test_one_queue_has_the_name_that_was_given() -> None:
    assert queue_names(Load(queue="orders")) == ["orders"]


def test_several_queues_are_numbered() -> None:
    assert queue_names(Load(queue="orders", queues=2)) == ["orders-0", "orders-1"]


def test_runs_without_a_name_use_different_queues() -> None:
    assert queue_names(Load()) != queue_names(Load())


def test_binding_keys_default_to_routing_keys_and_those_to_the_queue() -> None:
    assert binding_keys(Load(), "q") == ("q",)
    assert binding_keys(Load(routing_keys=("a", "b")), "q") == ("a", "b")
    assert binding_keys(Load(routing_keys=("a.b",), binding_keys=("a.#",)), "q") == ("a.#",)


def test_queues_are_shared_out_among_workers() -> None:
    names = ["a", "b", "c"]
    assert [queues_for_worker(names, n, 1) for n in range(1)] == [["a", "b", "c"]]
    assert [queues_for_worker(names, n, 2) for n in range(2)] == [["a", "c"], ["b"]]
    assert [queues_for_worker(names, n, 4) for n in range(4)] == [["a"], ["b"], ["c"], ["a"]]
