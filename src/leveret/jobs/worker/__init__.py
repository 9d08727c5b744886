"""Workers: call a function for each job of a topic, keep its lease, and settle it."""
