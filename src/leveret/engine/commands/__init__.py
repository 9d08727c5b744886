"""The operations that protocols offer their clients: publish, consume, settle, move, redrive."""
