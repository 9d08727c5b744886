"""The records of the log, and the block into which the engine writes them.

- `journal`  collects records, and knows the position that each will have in the log
- `records`  the byte format of records
- `chunks`   the byte format of chunks: messages of streams, as columns
- `index`    the byte format of the index of a log file

Nothing here touches a file: `leveret.storage` writes blocks and reads them back.
"""
