"""Operates a topic: changes its settings, reads its statistics, redrives dead jobs."""

from leveret.jobs import Client, TopicSettings


def main(client: Client) -> list[str]:
    client.set_settings("refund", TopicSettings(retries_max=5, backoff_s=0.5, concurrency_max=100))
    lines = [
        f"{topic.topic}: {topic.ready} ready, {topic.leased} at work, {topic.dead} dead"
        for topic in client.stats(namespace=client.namespace)
    ]
    for job in client.dead("refund", limit=10):
        last = job.failures[-1]
        lines.append(f"{job.id} failed {job.attempts} times, at last by {last.error}")
    lines.append(f"{client.redrive('refund')} are ready again")
    return lines


if __name__ == "__main__":
    with Client(namespace="shop") as client:
        print("\n".join(main(client)))
