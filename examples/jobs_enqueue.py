"""Enqueues jobs: one, many at once, one for later, and one that can be enqueued only once."""

from datetime import UTC, datetime, timedelta

import msgspec

from leveret.jobs import Client, NewJob


class Refund(msgspec.Struct):
    """The payload of a refund job."""

    order: int
    amount: str


def main(client: Client) -> list[int]:
    ids = [client.enqueue("refund", Refund(1, "12.50 EUR"), priority=-5)]

    # A hundred in one call: all of them, or none.
    jobs = [NewJob(topic="refund", payload=Refund(n, "5 EUR")) for n in range(2, 102)]
    ids += client.enqueue_many(jobs).ids

    # Not before a time.
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    ids.append(client.enqueue("report", {"name": "daily"}, deliver_after=tomorrow))

    # One job, however often this program runs, and even when an answer is lost.
    for _ in range(2):
        ids.append(client.enqueue("report", {"name": "May"}, idempotency_key="report-2026-05"))
    return ids


if __name__ == "__main__":
    with Client(namespace="shop") as client:
        found = main(client)
        print(f"{len(set(found))} jobs are safe")
