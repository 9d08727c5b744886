"""Remember the keys of published messages, and recognise a message that is published again."""
