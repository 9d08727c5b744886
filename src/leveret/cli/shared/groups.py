"""The groups of commands of `leveret`, and their help texts.

They are here so that `leveret --help` can show them without importing the groups.
"""

from typing import Final

GROUPS: Final = {
    "ctl": "Inspect and change a running broker.",
    "config": "Check and show the configuration of a broker.",
    "jobs": "Enqueue, dequeue and watch jobs, and create tokens.",
    "bus": "Event bus: post messages to a URL, handle dead letters, describe events (AsyncAPI).",
    "pipeline": "Keep a lake of messages with Spark: run all its steps, show its status, archive, "
    "query, replay, load, report and audit.",
}
PERF: Final = "Load a broker and measure message rates, confirms and latency."
