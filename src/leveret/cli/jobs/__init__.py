"""`leveret jobs`: enqueue jobs, watch topics, and run workers."""
