"""`python -m leveret.perf`: a load from flags or JSON, the result as one JSON object on stdout.

For tools; people use `leveret perf`.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from leveret.errors import LeveretError
from leveret.perf.load import Load
from leveret.perf.run import run

_FLAGS = (
    ("--host", "host", "the broker's address"),
    ("--port", "port", "the broker's AMQP port"),
    ("--user", "user", "who logs in"),
    ("--password", "password", "by which password"),
    ("--vhost", "vhost", "into which vhost"),
    ("--producers", "producers", "connections that publish"),
    ("--consumers", "consumers", "connections that consume"),
    ("--queues", "queues", "queues, shared out among them in turn"),
    ("--queue-type", "queue_type", "x-queue-type of the queues"),
    ("--seconds", "seconds", "how long"),
    ("--messages", "messages", "end after so many; --seconds 0 for no other end"),
    ("--confirm", "confirm_window", "publisher confirms, at most so many open; 0 = none"),
    ("--prefetch", "prefetch", "deliveries not yet acknowledged; 0 = consume without acks"),
    ("--ack-every", "ack_every", "acknowledge so many at once; 0 = half of the prefetch"),
    ("--rate", "rate", "messages a second of all producers; 0 = no limit"),
    ("--burst", "burst", "messages that a producer sends at once"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a load and print its figures; returns the exit code."""
    flags = vars(_parser().parse_args(argv))
    try:
        given = json.loads(flags.pop("load") or "{}")
        result = run(Load.of({**flags, **given}))
    except (LeveretError, OSError, json.JSONDecodeError) as fault:
        sys.stderr.write(f"leveret.perf: {fault}\n")
        return 1
    sys.stdout.write(json.dumps(result.to_json()) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m leveret.perf",
        description="Load an AMQP broker and print what it did as JSON.",
        argument_default=argparse.SUPPRESS,
    )
    base = Load()
    for flag, dest, text in _FLAGS:
        default = getattr(base, dest)
        shown = f"{text} ({default})" if default != "" else text
        parser.add_argument(flag, dest=dest, type=type(default), help=shown)
    parser.add_argument(
        "--size",
        dest="sizes",
        type=lambda text: (int(text),),
        help="bytes of a body; from 8 on it carries its send time (16)",
    )
    parser.add_argument("--persistent", action="store_true", help="persistent, in durable queues")
    parser.add_argument("--load", default="", metavar="JSON", help="any fields of a load")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
