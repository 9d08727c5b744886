"""Idempotency keys: the first job of a namespace with a key.

The engine's deduplication stores a digest and a number for each key, in 35 bytes, and the log keeps
them with the message in one block. They belong to the exchange `leveret.jobs` of a vhost, which is
declared with the first key. The number is the id of the job, which contains its time. The engine's
own window never ends; this module reads from the id whether a key is too old.
"""

from typing import Final

from leveret.engine.arguments.rules import TIME_MS_MAX
from leveret.engine.deduplication.deduplication import Deduplication, key_of
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import JobsInvalidError
from leveret.job_model import IDEMPOTENCY_MS
from leveret.job_service.embedded.envelope import KEY
from leveret.job_service.snowflake import EPOCH_MS, first_of
from leveret.wire.tables import Field, field_of

EXCHANGE: Final = "leveret.jobs"
KEYS_MAX: Final = 1_000_000  # of a namespace; the oldest are forgotten first


def first_id(vhost: Vhost, key: str, now_ms: int) -> int | None:
    """Return the id of the first job with a key; None where the key is unknown."""
    exchange = vhost.exchanges.get(EXCHANGE)
    if exchange is None or exchange.deduplication is None:
        return None
    known = exchange.deduplication
    oldest = first_of(max(now_ms - IDEMPOTENCY_MS, EPOCH_MS))
    found = int(known.added_ms(_digest(key), oldest + known.window_ms))
    return abs(found) or None  # negative where there is no log


def remember(vhost: Vhost, key: str, id: int) -> None:
    """Remember the key of a new job, inside a turn."""
    turn = vhost.turn
    deduplication_of(vhost).remember(_digest(key), id, turn.journal)


def deduplication_of(vhost: Vhost) -> Deduplication:
    """Return the deduplication of a namespace; declare its exchange if there is none.

    Raise EngineError if it cannot be declared, or JobsInvalidError if it remembers no keys.
    """
    exchange = vhost.exchanges.get(EXCHANGE)
    if exchange is None:
        settings = {"header": KEY, "window_ms": TIME_MS_MAX, "size": KEYS_MAX}
        arguments: dict[str, Field] = {"x-deduplication": field_of(settings)}
        exchange = vhost.declare_exchange(EXCHANGE, "direct", durable=True, arguments=arguments)
    found = exchange.deduplication
    if found is None:
        raise JobsInvalidError(
            f"the exchange {EXCHANGE} remembers no keys: delete it, and the service declares it",
            "idempotency_key",
        )
    return found


def _digest(key: str) -> bytes:
    return key_of(field_of(key))
