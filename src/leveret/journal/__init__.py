"""What the node writes to its log: records, and the block that a turn of the engine makes of them.

- `Journal`  takes records from the engine and knows where in the log each will stand
- `records`  their bytes, both ways

Nothing here touches a file: `leveret.storage` writes blocks and reads them back.
"""
