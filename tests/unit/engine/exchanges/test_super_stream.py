"""Super streams: a key has one partition, the one that RabbitMQ's stream clients would choose."""

from collections import Counter

import pytest

from leveret.engine.exchanges.hashing import murmur3
from tests.unit.engine.front import Client, refusal


def declare(client: Client, **arguments: object) -> None:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.send("exchange.declare", exchange="s", type="x-super-stream", arguments=table)


def counts(client: Client, partitions: int) -> list[int]:
    queues = client.stage.broker.vhost("/").queues
    return [queues[f"s-{number}"].message_count() for number in range(partitions)]


def reference(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 by its definition, in big integers."""
    mask = 0xFFFFFFFF
    state = seed
    for at in range(0, len(data) & ~3, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        state ^= word * 0x1B873593 & mask
        state = (state << 13 | state >> 19) & mask
        state = (state * 5 + 0xE6546B64) & mask
    tail = data[len(data) & ~3 :]
    if tail:
        word = int.from_bytes(tail, "little") * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        state ^= word * 0x1B873593 & mask
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return state ^ state >> 16


def test_the_hash_is_murmur_for_every_length() -> None:
    for size in range(40):
        key = bytes((7 * size + index * 31) & 0xFF for index in range(size))
        assert murmur3(key) == reference(key, 104_729)


def test_partitions_come_with_the_exchange() -> None:
    client = Client()
    declare(client, x_partitions=3, x_max_age="1D")
    queues = client.stage.broker.vhost("/").queues
    assert sorted(queues) == ["s-0", "s-1", "s-2"]
    assert {queue.settings.max_age_ms for queue in queues.values()} == {86_400_000}


def test_a_key_always_leads_to_the_same_partition_and_many_to_all() -> None:
    client = Client()
    declare(client, x_partitions=3)
    for number in range(60):
        client.publish(f"key{number % 20}", "a", exchange="s")
    expected = Counter(murmur3(f"key{number}".encode()) % 3 for number in range(20))
    assert counts(client, 3) == [3 * expected[number] for number in range(3)]


@pytest.mark.parametrize("count", [0, -1, 1001, "3", True])
def test_the_number_of_partitions_is_checked(count: object) -> None:
    client = Client()
    sent = client.send(
        "exchange.declare", exchange="s", type="x-super-stream", arguments={"x-partitions": count}
    )
    assert refusal(sent)[:2] == ("channel", 406)
    assert client.stage.broker.vhost("/").queues == {}


def test_a_queue_that_is_no_stream_cannot_be_a_partition() -> None:
    client = Client()
    client.queue("s-1")
    sent = client.send(
        "exchange.declare", exchange="s", type="x-super-stream", arguments={"x-partitions": 2}
    )
    assert refusal(sent)[:2] == ("channel", 406)
    assert "s" not in client.stage.broker.vhost("/").exchanges
    assert not client.exists("s-0")


def test_the_binding_key_is_a_number() -> None:
    client = Client()
    declare(client)
    client.queue("other", x_queue_type="classic")
    sent = client.send("queue.bind", queue="other", exchange="s", routing_key="one")
    assert refusal(sent)[:2] == ("channel", 406)
