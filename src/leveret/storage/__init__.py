"""Bytes on disk: the node's one write-ahead log, and what is needed to start from it again.

- `Disk`        files as the log needs them; a fake with faults ships in `leveret.testing`
- `blocks`      the frame around the records of a turn: length, checksum, number
- `Log`         writes blocks and syncs them, in a thread of its own
- `Checkpoint`  definitions and live positions as of the start of a log file
- `recover`     from checkpoint and log to the state of the broker
- `Pages`       reads waiting messages back
- `Space`       room on the disk: the alarm, and the reserve for when there is none

Confirmed means on disk: whoever waits for a block is told only after its sync returned.
"""
