"""Raft without I/O: one log that a majority of nodes agrees on.

Nouns:

- `Raft`      one member of one group: takes messages, ticks and proposals, hands out `Ready`s
- `Ready`     what the host must do now: write and sync, then send, apply and answer reads
- `Log`       the entries in memory, which of them are synced, and where they begin
- `Entry`     one command, or a change of the members, at an index and of a term
- `Members`   who votes and who only listens
- `Progress`  what the leader knows of one follower
- `Snapshot`  the state at an index, with the entries that it still refers to
- `Message`   what members send each other; `codec` makes bytes of it

The host's duty, in this order: take `ready()`; write its term, vote, snapshot and entries and sync
them if it says so (`leveret.cluster.store`); then send its messages, restore its snapshot, apply
its committed entries and answer its reads; then call `advance()`. There is one `Ready` under way at
a time; messages, ticks and proposals may come meanwhile. A sync that fails ends the member: it is
never tried again.

Nothing here asks for the time, draws chance from outside, or touches a file or a socket.
"""
