"""`make guard` counts and compares; `make guard-update` (--update) records the counts.

Exit codes: 0 within limits, 1 over a limit, 2 if counting or comparing is impossible.
"""

import argparse
import sys
from collections.abc import Sequence

from leveret import build_info
from tools.guard import baseline
from tools.guard.counting import CannotCountError, count, why_not


def main(argv: Sequence[str] | None = None) -> int:
    """Count the instructions of the hot paths; return the exit code."""
    parser = argparse.ArgumentParser(prog="make guard", description="Count instructions.")
    parser.add_argument("--update", action="store_true", help="record what is counted")
    options = parser.parse_args(argv)
    reason = why_not() or ("" if build_info.is_compiled() else "only the compiled form counts")
    if reason:
        print(f"guard: {reason}", file=sys.stderr)
        return 2
    try:
        counted = count()
    except CannotCountError as fault:
        print(f"guard: {fault}", file=sys.stderr)
        return 2
    return _update(counted) if options.update else _compare(counted)


def _update(counted: dict[str, float]) -> int:
    before = baseline.load() if baseline.FILE.exists() else None
    _show(counted, before)
    baseline.save(counted)
    print(f"recorded in {baseline.FILE.name}")
    return 0


def _compare(counted: dict[str, float]) -> int:
    recorded = baseline.load()
    _show(counted, recorded)
    reason = recorded.why_not_here(baseline.environment())
    reason = reason or recorded.why_not_comparable(counted)
    if reason:
        print(f"guard: {reason}", file=sys.stderr)
        return 2
    faults = recorded.faults(counted)
    for fault in faults:
        print(f"guard: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _show(counted: dict[str, float], recorded: baseline.Baseline | None) -> None:
    growth = recorded.growth(counted) if recorded is not None else {}
    print(f"{'path':<28} {'instructions':>13}  against the record")
    for name, number in counted.items():
        change = f"{growth[name]:+.1%}" if name in growth else "new"
        print(f"{name:<28} {number:>13,.0f}  {change}")


if __name__ == "__main__":
    raise SystemExit(main())
