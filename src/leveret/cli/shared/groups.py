"""The groups of commands of `leveret`, and their help texts.

They are here so that `leveret --help` can show them without importing the groups.
"""

from typing import Final

GROUPS: Final = {
    "ctl": "Inspect and change a running broker.",
    "config": "Check and show the configuration of a broker.",
    "jobs": "Enqueue, dequeue and watch jobs, and create tokens.",
    "bus": "Event bus: post to a URL, handle dead letters, describe events.",
    "pipeline": "Archive, query, replay, report and audit messages with Spark.",
}
PERF: Final = "Load a broker and measure message rates, confirms and latency."
