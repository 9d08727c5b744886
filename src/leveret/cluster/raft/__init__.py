"""Raft without I/O: one log of blocks that a majority of nodes agrees on.

Nouns:

- `Raft`         one member: takes messages, ticks and blocks, and returns work for its host
- `Ready`        a write for the host: term and vote, a cut of the log, blocks of the leader
- `Block`        one block of the node's write-ahead log; its number is the index
- `RaftLog`      ends and terms of the log, and a window of its newest blocks in memory
- `Members`      the voters and non-voters of the cluster
- `Progress`     the leader's knowledge about one follower
- `HardState`    term and vote, and whether the member has lost blocks that it had acknowledged
- `ReadRequest`  blocks that the host reads from log files for a follower that lags
- `Message`      a message between members; `codec` encodes it

Duties of the host, after every input:

1. If the member has become leader, append a TERM block before anything else.
2. Take `take_messages()` and send them. They may be lost, late, reordered or repeated.
3. Take `ready()`. Cut the log, write blocks and state behind all earlier writes, sync, then call
   `advance()`; then begin again with 1. Inputs may arrive meanwhile.
4. Write and sync blocks that it has given to `append`, in their order, and call `on_synced()`.
5. Answer each `take_reads()` by `on_read()`, and each `take_copies()` by `on_copied()` or
   `on_copy_failed()`.
6. Call `send_held()` soon after `has_held` has become True.

A failed sync ends the member and is never tried again. This package reads no clock, file or socket.
Its only randomness is seeded (`Rng`).
"""
