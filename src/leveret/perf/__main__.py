"""`python -m leveret.perf`: run a load from flags or JSON and print the result as JSON.

This is for tools. People use `leveret perf`.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from leveret.errors import LeveretError
from leveret.perf.load import Load
from leveret.perf.run import run

_FLAGS = (
    ("--host", "host", "address of the broker"),
    ("--port", "port", "AMQP port of the broker"),
    ("--user", "user", "user name"),
    ("--password", "password", "password"),
    ("--vhost", "vhost", "vhost"),
    ("--producers", "producers", "number of connections that publish"),
    ("--consumers", "consumers", "number of connections that consume"),
    ("--queues", "queues", "number of queues, assigned to clients in turn"),
    ("--queue-type", "queue_type", "x-queue-type of the queues"),
    ("--seconds", "seconds", "duration of the run"),
    (
        "--messages",
        "messages",
        "stop after this number of messages; use --seconds 0 for no time limit",
    ),
    ("--confirm", "confirm_window", "maximum number of unconfirmed messages; 0 = no confirms"),
    ("--prefetch", "prefetch", "maximum number of unacknowledged deliveries; 0 = auto-ack"),
    ("--ack-every", "ack_every", "acknowledge every N deliveries; 0 = half of the prefetch"),
    ("--rate", "rate", "messages per second, of all producers together; 0 = no limit"),
    ("--burst", "burst", "messages that a producer sends in one write"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a load, print the results and return the exit code."""
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
        description="Load an AMQP broker and print the results as JSON.",
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
        help="body size in bytes; latency is measured from 8 bytes on (16)",
    )
    parser.add_argument(
        "--persistent", action="store_true", help="publish persistent messages to durable queues"
    )
    parser.add_argument(
        "--load", default="", metavar="JSON", help="fields of a Load as JSON; override the flags"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
