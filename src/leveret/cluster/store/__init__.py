"""The disk of a node's Raft groups: term, vote, snapshot and entries of all of them in one log.

Nouns:

- `Store`     collects what the members of a turn ask to be written into one `Block`, and knows
              where each entry stands
- `Block`     what is written and synced at once; nothing of it counts before that
- `Files`     the edge: writes blocks, reads back, removes; the only part that touches a disk
- `Index`     where the snapshot and the entries of every group stand, by file and offset
- `records`   the bytes of what a block says; `blocks` those of blocks and files

A log is a row of files. Each begins with a checkpoint, the whole index as of then, so that a start
replays the last file only; of the others it reads what the index points to. A file that nothing
points to is removed; from one that little points to, that little is written once more.

Only one block is ever under way, and it is synced before the next one is begun. So whatever is not
whole at the end of the last file was never relied upon, and anything else that is not whole is
damage: the member has forgotten what it promised, and the node does not start.
"""
