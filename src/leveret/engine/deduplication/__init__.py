"""Remember the keys of published messages, and recognise a message that was published before."""
