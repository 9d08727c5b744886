"""Files on disk: the node's write-ahead log, and recovery from it after a restart.

- `Disk`          file operations that the log needs; `leveret.testing` has a fake with faults
- `blocks`        the frame around the records of a turn: length, checksum, number
- `Log`           writes and syncs blocks in its own thread
- `checkpoint`    definitions and live positions as of the start of a log file
- `recover`       rebuilds the broker's state from checkpoint and log
- `LogReader`     reads waiting messages back from the log
- `Compactor`     copies messages out of nearly empty log files, so that the files can be removed
- `damage`        finds bytes that are not a valid block, and the queues they belonged to
- `repair`        takes damaged bytes out of the log of a stopped node
- `backup`        saves a whole node into an `archive`; `queue_backup` saves one queue
- `dump`          prints the content of a file for people
- `DiskAlarm`     blocks publishers while disk space is short

Confirmed means on disk: a publisher gets its confirm only after the sync of its block has returned.
"""
