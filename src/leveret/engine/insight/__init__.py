"""Look at queues and messages without changing them: walk, peek, filter, locate, explain."""
