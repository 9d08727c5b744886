"""Bytes on disk: the node's one write-ahead log, and what is needed to start from it again.

- `Disk`        files as the log needs them; a fake with faults ships in `leveret.testing`
- `blocks`      the frame around the records of a turn: length, checksum, number
- `Log`         writes blocks and syncs them, in a thread of its own
- `Checkpoint`  definitions and live positions as of the start of a log file
- `recover`     from checkpoint and log to the state of the broker
- `Pages`       reads waiting messages back
- `damage`      bytes that are no block, and whose they were; `repair` takes them out
- `backup`      the node at one moment, and `queue_backup` one queue, in an `archive`
- `dump`        what stands in a file, for people
- `Space`       room on the disk: the alarm, and the reserve for when there is none

Confirmed means on disk: whoever waits for a block is told only after its sync returned.
"""
