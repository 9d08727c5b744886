"""Raft without I/O: one log that a majority of nodes agrees on.

Nouns:

- `Raft`      one member of one group: takes messages, ticks and proposals, and returns `Ready`s
- `Ready`     work for the host: write and sync, then send, apply and answer reads
- `Log`       the entries in memory, which of them are synced, and where they begin
- `Entry`     one command, or a change of the members, with an index and a term
- `Members`   the voters and non-voters of a group
- `Progress`  the leader's knowledge about one follower
- `Snapshot`  the state at an index, with the entries that it still refers to
- `Message`   a message between members; `codec` encodes it

The host must keep this order: take `ready()`; write its term, vote, snapshot and entries, and sync
them if `must_sync` is set (`leveret.cluster.store`); then send its messages, restore its snapshot,
apply its committed entries and answer its reads; then call `advance()`. There is one `Ready` at a
time. Messages, ticks and proposals may arrive meanwhile. A failed sync ends the member and is never
tried again.

This package reads no clock, file or socket. Its only randomness is seeded (`Rng`).
"""
