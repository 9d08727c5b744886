"""`python -m leveret.perf`: a load from flags, the result as one JSON object on stdout."""

import argparse
import json
import sys
from collections.abc import Sequence

from leveret.errors import LeveretError
from leveret.perf.load import Load
from leveret.perf.run import run


def main(argv: Sequence[str] | None = None) -> int:
    """Run a load and print its figures; returns the exit code."""
    load = Load(**vars(_parser().parse_args(argv)))
    try:
        result = run(load)
    except (LeveretError, OSError) as fault:
        sys.stderr.write(f"leveret.perf: {fault}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(json.dumps(result.to_json()) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m leveret.perf",
        description="Load an AMQP broker and print what it did as JSON.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    base = Load()
    for flag, dest, text in (
        ("--host", "host", "the broker's address"),
        ("--port", "port", "the broker's AMQP port"),
        ("--user", "user", "who logs in"),
        ("--password", "password", "by which password"),
        ("--vhost", "vhost", "into which vhost"),
        ("--producers", "producers", "connections that publish"),
        ("--consumers", "consumers", "connections that consume"),
        ("--queues", "queues", "queues, shared out among them in turn"),
        ("--queue-type", "queue_type", "x-queue-type of the queues"),
        ("--size", "body_bytes", "bytes of a body; from 8 on it carries its send time"),
        ("--seconds", "seconds", "how long"),
        ("--confirm", "confirm_window", "publisher confirms, at most so many open; 0 = none"),
        ("--prefetch", "prefetch", "ack every half of it; 0 = consume without acks"),
        ("--rate", "rate", "messages a second of all producers; 0 = no limit"),
        ("--burst", "burst", "messages that a producer sends at once"),
    ):
        default = getattr(base, dest)
        parser.add_argument(flag, dest=dest, type=type(default), default=default, help=text)
    parser.add_argument("--persistent", action="store_true", help="persistent, in durable queues")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
