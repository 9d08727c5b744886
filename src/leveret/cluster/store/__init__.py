"""The disk of a node's Raft groups: term, vote, snapshot and entries of all of them in one log.

Nouns:

- `Store`     collects the writes of a turn into one `Block`, and knows the position of each entry
- `Block`     the unit of writing and syncing; it counts only as a whole
- `Files`     writes, reads and removes files; the only part that touches a disk
- `Index`     positions of the snapshot and the entries of every group, by file and offset
- `records`   encoding of the content of a block; `blocks` of blocks and files

A log is a sequence of files. Each begins with a checkpoint: the whole index at that time. So a
start replays only the last file, and reads from the others what the index points to. A file without
references is removed; the few referenced records of a sparse file are written again.

Only one block is being written at a time, and it is synced before the next one begins. So an
incomplete block at the end of the last file was never relied upon. Any other incomplete block is
damage: the member has lost data that it promised to keep, and the node does not start.
"""
