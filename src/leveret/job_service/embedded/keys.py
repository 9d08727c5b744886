"""Idempotency keys: which job of a namespace came first under a key.

The engine's deduplication remembers digests of keys with a number each, in 35 bytes, and the log
keeps both with the message in one block. Its owner in a vhost is the exchange `leveret.jobs`, made
with the first key. The number is the id of the job, which is also its time: what the engine takes
for the window of its memory never ends, and whether a key is too old is read from the id here.
"""

from typing import Final

from leveret.engine.arguments.rules import TIME_MS_MAX
from leveret.engine.deduplication.deduplication import Deduplication, key_of
from leveret.engine.vhosts.vhost import Vhost
from leveret.job_model import IDEMPOTENCY_MS
from leveret.job_service.embedded.envelope import KEY
from leveret.job_service.snowflake import EPOCH_MS, first_of
from leveret.wire.tables import Field, field_of

EXCHANGE: Final = "leveret.jobs"
KEYS_MAX: Final = 1_000_000  # of a namespace; the oldest go first


def first_id(vhost: Vhost, key: str, now_ms: int) -> int | None:
    """The id of the job that came first under a key, if that is known."""
    exchange = vhost.exchanges.get(EXCHANGE)
    if exchange is None or exchange.deduplication is None:
        return None
    known = exchange.deduplication
    oldest = first_of(max(now_ms - IDEMPOTENCY_MS, EPOCH_MS))
    found = int(known.added_ms(_digest(key), oldest + known.window_ms))
    return abs(found) or None  # negative where there is no log


def remember(vhost: Vhost, key: str, id: int) -> None:
    """A job was put in under a key, in this turn."""
    turn = vhost.turn
    memory(vhost).remember(_digest(key), id, turn.journal)


def memory(vhost: Vhost) -> Deduplication:
    """What a namespace remembers, made if there is none."""
    exchange = vhost.exchanges.get(EXCHANGE)
    if exchange is None:
        settings = {"header": KEY, "window_ms": TIME_MS_MAX, "size": KEYS_MAX}
        arguments: dict[str, Field] = {"x-deduplication": field_of(settings)}
        exchange = vhost.declare_exchange(EXCHANGE, "direct", durable=True, arguments=arguments)
    found = exchange.deduplication
    assert found is not None
    return found


def _digest(key: str) -> bytes:
    return key_of(field_of(key))
