"""`leveret bus`: run services of the event bus and handle dead letters."""
